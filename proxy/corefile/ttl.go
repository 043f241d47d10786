package corefile

import "time"

// maxRaisedTTL bounds how much a TTL may be raised: an hour, as in the cache (maxMinTTL).
const maxRaisedTTL = maxMinTTL

// readTTL reads MIN_TTL MAX_TTL.
func readTTL(c *Config, s stanza) error {
	const usage = "ttl 5s 1h"
	if len(s.args) != 2 {
		return s.errorf("has %d values instead of MIN_TTL and MAX_TTL, write for example %q", len(s.args), usage)
	}
	lowest, err := s.seconds(s.args[0], usage, 0, maxRaisedTTL)
	if err != nil {
		return err
	}
	highest, err := s.seconds(s.args[1], usage, 0, maxTTL)
	if err != nil {
		return err
	}
	if lowest > highest {
		return s.errorf("the minimum TTL, %s, is above the maximum TTL, %s, write the lower one first", short(lowest), short(highest))
	}
	c.TTL = TTL{Min: uint32(lowest / time.Second), Max: uint32(highest / time.Second)}
	return nil
}

func readFollow(c *Config, s stanza) error {
	arg, err := s.word("follow off", "a switch", "on", "off")
	c.Follow = arg == "on"
	return err
}
