package proxy

// brief returns a reply without records to a packet that is at least a header
// long, without a parser: the question is repeated if it can be found.
func brief(packet []byte, rcode int) []byte { return appendBrief(nil, packet, rcode) }

// appendBrief is brief into an empty slice with room.
func appendBrief(r, packet []byte, rcode int) []byte {
	end := questionBytes(packet)
	r = append(r, packet[:max(end, headerBytes)]...)
	r[2] = 0x80 | r[2]&0x79 // a response; the opcode and RD stay
	r[3] = 0x80 | r[3]&0x10 | byte(rcode&0xf)
	for i := 4; i < headerBytes; i++ {
		r[i] = 0
	}
	if end > 0 {
		r[5] = 1
	}
	return r
}

// questionBytes returns where the only question of the packet ends, 0 if it has
// another number of questions, or one that is broken or longer than any name.
func questionBytes(packet []byte) int {
	if packet[4] != 0 || packet[5] != 1 {
		return 0
	}
	for i := headerBytes; i < len(packet); i += 1 + int(packet[i]) {
		switch {
		case packet[i] > 63 || i >= headerBytes+nameMost:
			return 0
		case packet[i] == 0:
			if i+5 > len(packet) {
				return 0
			}
			return i + 5
		}
	}
	return 0
}
