package wire

import "encoding/binary"

// Numbers of messages; see the RFCs.
const (
	HeaderBytes = 12 // RFC 1035 §4.1.1
	// OPTBytes is the length of an OPT record without options (RFC 6891 §6.1.2).
	OPTBytes = 11
	// MaxTTL is the greatest TTL (RFC 2181 §8).
	MaxTTL = 1<<31 - 1
	// MaxChain is how many CNAMEs an answer may lead through. Resolvers stop at about
	// as many (BIND 16, Unbound 11).
	MaxChain = 16
	// MaxName is the length of the longest name (RFC 1035 §2.3.4).
	MaxName = 255

	typeA, typeNS, typeCNAME, typeSOA, typeAAAA, typeOPT = 1, 2, 5, 6, 28, 41

	classINET = 1
)

const (
	// AdvertisedSize is the UDP size in the proxy's queries and replies: the greatest
	// that crosses every path unfragmented (DNS Flag Day 2020).
	AdvertisedSize = 1232
	// MaxUDP is the longest reply over UDP, whatever the client advertises: a longer one
	// has many fragments, and is lost with one of them. By TC the client comes back over TCP.
	MaxUDP = 4096
	minUDP = 512 // RFC 1035 §2.3.4
)

// UDPLimit returns how long a reply over UDP may be by the size that the client
// advertises, 0 where it advertises none.
func UDPLimit(size uint16) int { return min(max(int(size), minUDP), MaxUDP) }

// ValidTTL returns the TTL, 0 for one above MaxTTL (RFC 2181 §8).
func ValidTTL(ttl uint32) uint32 {
	if ttl > MaxTTL {
		return 0
	}
	return ttl
}

// IsQuery tells whether a packet can be answered: a response is never answered, or two
// servers could answer each other without end.
func IsQuery(packet []byte) bool { return len(packet) >= HeaderBytes && packet[2]&0x80 == 0 }

// QuestionEnd returns where the only question of the packet ends. It is 0 with another
// number of questions, and for a question that is broken or longer than any name. The
// packet has at least a header.
func QuestionEnd(packet []byte) int {
	if packet[4] != 0 || packet[5] != 1 {
		return 0
	}
	for i := HeaderBytes; i < len(packet); i += 1 + int(packet[i]) {
		switch {
		case packet[i] > 63 || i >= HeaderBytes+MaxName:
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

// TTLOffsets returns the places of the TTLs in a message that the dns library packed,
// without that of the OPT record.
func TTLOffsets(msg []byte) (at []uint16) {
	eachRecord(msg, func(i int) {
		if binary.BigEndian.Uint16(msg[i:]) != typeOPT {
			at = append(at, uint16(i+4))
		}
	})
	return at
}

// eachRecord calls f with the place of the type of each record, up to one that is broken.
func eachRecord(msg []byte, f func(at int)) {
	records := 0
	for i := 6; i < HeaderBytes; i += 2 {
		records += int(binary.BigEndian.Uint16(msg[i:]))
	}
	for i := QuestionEnd(msg); records > 0; records-- {
		i = skipName(msg, i)
		if i == 0 || i+10 > len(msg) {
			return
		}
		f(i)
		i += 10 + int(binary.BigEndian.Uint16(msg[i+8:]))
	}
}

// skipName returns where the name at i ends, 0 if it does not.
func skipName(msg []byte, i int) int {
	for i < len(msg) {
		switch n := int(msg[i]); {
		case n == 0:
			return i + 1
		case n >= 0xc0:
			return i + 2
		default:
			i += 1 + n
		}
	}
	return 0
}

// fold returns the lower case of an ASCII letter. Lengths of labels are below 64, so
// folding leaves them alone.
func fold(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}
