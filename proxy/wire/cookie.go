package wire

import "encoding/binary"

// The lengths of cookies (RFC 7873 §4).
const (
	clientCookie                       = 8
	leastServerCookie, maxServerCookie = 8, 32
	// CookieRoom is how many bytes a reply needs at most for AppendCookie.
	CookieRoom = 4 + clientCookie + maxServerCookie
)

// Cookie returns the DNS cookie in a query: of the client, and behind it of the server if the client
// has one. It is nil without a valid one.
func Cookie(packet []byte) []byte {
	end := QuestionEnd(packet)
	if end == 0 || string(packet[6:HeaderBytes]) != "\x00\x00\x00\x00\x00\x01" || len(packet) <= end+OPTBytes ||
		packet[end] != 0 || binary.BigEndian.Uint16(packet[end+1:]) != typeOPT {
		return nil
	}
	for options := packet[end+OPTBytes:]; len(options) >= 4; {
		n := 4 + int(binary.BigEndian.Uint16(options[2:]))
		if n > len(options) {
			return nil
		}
		if cookie := options[4:n]; binary.BigEndian.Uint16(options) == optionCookie {
			if server := len(cookie) - clientCookie; server != 0 && (server < leastServerCookie || server > maxServerCookie) {
				return nil
			}
			return cookie
		}
		options = options[n:]
	}
	return nil
}

// HasServerCookie tells whether the client has a cookie of the server.
func HasServerCookie(cookie []byte) bool { return len(cookie) > clientCookie }

// AppendCookie appends the cookie of the query to a reply whose last record is its OPT record, if it
// has one. A client without a server's cookie gets its own as that: it accepts any, and only has to
// see its own again (RFC 7873 §5.3).
func AppendCookie(reply, cookie []byte) []byte {
	opt := 0
	eachRecord(reply, func(at int) {
		if opt = 0; binary.BigEndian.Uint16(reply[at:]) == typeOPT {
			opt = at
		}
	})
	if opt == 0 || len(cookie) < clientCookie {
		return reply
	}
	server := cookie[clientCookie:]
	if len(server) == 0 {
		server = cookie
	}
	n := clientCookie + len(server)
	binary.BigEndian.PutUint16(reply[opt+8:], binary.BigEndian.Uint16(reply[opt+8:])+uint16(4+n))
	reply = append(reply, 0, optionCookie, 0, byte(n))
	reply = append(reply, cookie[:clientCookie]...)
	return append(reply, server...)
}
