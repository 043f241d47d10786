package netpol

// CompanionPrefix begins the name of every companion.
const CompanionPrefix = "namegate-dns-"
