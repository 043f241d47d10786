package wire

// ErrorReply returns a reply without records to a packet that IsQuery. The question is
// repeated if it can be read.
func ErrorReply(packet []byte, rcode int) []byte { return AppendErrorReply(nil, packet, rcode) }

// AppendErrorReply appends such a reply to an empty slice with room.
func AppendErrorReply(r, packet []byte, rcode int) []byte {
	end := QuestionEnd(packet)
	r = append(r, packet[:max(end, HeaderBytes)]...)
	r[2] = 0x80 | r[2]&0x79 // a response; the opcode and RD stay
	r[3] = 0x80 | r[3]&0x10 | byte(rcode&0xf)
	for i := 4; i < HeaderBytes; i++ {
		r[i] = 0
	}
	if end > 0 {
		r[5] = 1
	}
	return r
}
