// Package load asks questions at fixed moments, whatever the answers do, and
// measures each answer from the moment at which its question was due: a server that
// stalls is charged for every question that had to wait.
package load

import (
	"encoding/binary"
	"strings"
)

const (
	headerSize = 12
	typeA      = 1
	classIN    = 1
	typeOPT    = 41
	// udpSize is what clients announce (RFC 9715).
	udpSize = 1232
)

// Query appends a query for the addresses of a name, with EDNS, as the usual
// resolvers of clients send it. No label of the name is longer than 63.
func Query(to []byte, id uint16, name string) []byte {
	to = binary.BigEndian.AppendUint16(to, id)
	to = append(to, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 1) // RD, one question, one OPT
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		to = append(append(to, byte(len(label))), label...)
	}
	to = append(to, 0, 0, typeA, 0, classIN)
	return append(to, 0, 0, typeOPT, udpSize>>8, udpSize&0xff, 0, 0, 0, 0, 0, 0)
}

// reply reads the id and the response code of a reply.
func reply(packet []byte) (id uint16, rcode byte, ok bool) {
	if len(packet) < headerSize || packet[2]&0x80 == 0 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint16(packet), packet[3] & 0x0f, true
}
