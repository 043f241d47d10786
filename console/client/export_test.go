package client

// AskedAtOnce is how many agents are asked at a time.
const AskedAtOnce = askedAtOnce
