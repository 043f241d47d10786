package wire

// opcodeMask has the bits of the opcode in the header's third byte.
const opcodeMask = 0x78

// ErrorReply returns a reply without records to a packet that IsQuery. The question is
// repeated if it can be read.
func ErrorReply(packet []byte, rcode int) []byte { return AppendErrorReply(nil, packet, rcode) }

// AppendErrorReply appends such a reply to an empty slice with room.
func AppendErrorReply(r, packet []byte, rcode int) []byte {
	end := QuestionEnd(packet)
	r = append(r, packet[:max(end, HeaderBytes)]...)
	if r[2]&opcodeMask == 0 {
		r[2] = 0x80 | r[2]&0x01 // a response; RD stays
		r[3] = 0x80 | r[3]&0x10 // RA; CD stays
	} else { // RD, RA and CD are of queries alone
		r[2] = 0x80 | r[2]&opcodeMask
		r[3] = 0
	}
	r[3] |= byte(rcode & 0xf)
	for i := 4; i < HeaderBytes; i++ {
		r[i] = 0
	}
	if end > 0 {
		r[5] = 1
	}
	return r
}
