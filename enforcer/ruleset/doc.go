// Package nftrules renders ports and peers of policies in the words of package nft, for the
// ordered rules and for the rule lists of subjects, of which it keeps the members of peers.
package ruleset
