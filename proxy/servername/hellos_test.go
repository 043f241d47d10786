package servername

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
)

// A hello of tests is made of parts, so that each part can be wrong.

type extension struct {
	kind uint16
	data []byte
}

func vector8(b []byte) []byte { return append([]byte{byte(len(b))}, b...) }
func vector16(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

// names are the entries of a server_name extension; "#text" is an entry of another type.
func names(all ...string) extension {
	var list []byte
	for _, n := range all {
		kind := byte(0)
		if rest, ok := strings.CutPrefix(n, "#"); ok {
			kind, n = 5, rest
		}
		list = append(append(list, kind), vector16([]byte(n))...)
	}
	return extension{0, vector16(list)}
}

var (
	versions = func(v ...uint16) extension {
		var b []byte
		for _, v := range v {
			b = binary.BigEndian.AppendUint16(b, v)
		}
		return extension{43, vector8(b)}
	}
	groups     = extension{10, vector16([]byte{0, 29, 0x11, 0xec})}
	signatures = extension{13, vector16([]byte{4, 3, 8, 4})}
	share      = func(group uint16, size int) extension {
		return extension{51, vector16(append(binary.BigEndian.AppendUint16(nil, group), vector16(bytes.Repeat([]byte{7}, size))...))}
	}
	padding = func(n int) extension { return extension{21, make([]byte, n)} }
)

// body is the body of a ClientHello.
func body(version uint16, extensions ...extension) []byte {
	b := binary.BigEndian.AppendUint16(nil, version)
	b = append(b, bytes.Repeat([]byte{9}, 32)...)
	b = append(b, vector8(bytes.Repeat([]byte{8}, 32))...)
	b = append(b, vector16([]byte{0x13, 1, 0xc0, 0x2f, 0, 0x2f})...)
	b = append(b, vector8([]byte{0})...)
	if extensions == nil {
		return b
	}
	var all []byte
	for _, e := range extensions {
		all = append(binary.BigEndian.AppendUint16(all, e.kind), vector16(e.data)...)
	}
	return append(b, vector16(all)...)
}

func message(kind byte, body []byte) []byte {
	return append([]byte{kind, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

func record(kind byte, payload []byte) []byte {
	return append(append([]byte{kind, 3, 1}, binary.BigEndian.AppendUint16(nil, uint16(len(payload)))...), payload...)
}

// records cuts a message into records of a size.
func records(message []byte, size int) (out []byte) {
	for part := range slices.Chunk(message, size) {
		out = append(out, record(handshake, part)...)
	}
	return out
}

// modern is a hello of TLS 1.3 with these extensions.
func modern(extensions ...extension) []byte {
	return record(handshake, modernMessage(extensions...))
}

func modernMessage(extensions ...extension) []byte {
	return message(clientHello, body(0x303, append([]extension{versions(0x304, 0x303), groups, signatures, share(29, 32)}, extensions...)...))
}

// helloFor is the hello that crypto/tls sends.
func helloFor(name string) []byte { return clientBytes(&tls.Config{ServerName: name}) }

// clientBytes are the first bytes of crypto/tls as a client.
func clientBytes(config *tls.Config) []byte {
	config.InsecureSkipVerify = true
	a, b := net.Pipe()
	defer b.Close()
	go func() {
		_ = tls.Client(a, config).Handshake()
		_ = a.Close()
	}()
	head := make([]byte, recordHeader)
	if _, err := io.ReadFull(b, head); err != nil {
		panic(err)
	}
	rest := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(b, rest); err != nil {
		panic(err)
	}
	return append(head, rest...)
}
