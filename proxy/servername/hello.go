package servername

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/policy/fqdn"
)

const (
	helloTimeout = 3 * time.Second
	maxHello     = 16 << 10
	firstRead    = 2 << 10 // most hellos are whole in that
	maxClaimed   = 255

	recordHeader = 5
	maxRecord    = 16<<10 + 256

	changeCipherSpec, handshake, applicationData = 20, 22, 23 // types of records
	clientHello, serverHello                     = 1, 2       // types of handshake messages

	encryptedServerName  = 0xffce // of the drafts before encrypted_client_hello
	encryptedClientHello = 0xfe0d
)

var (
	errNoTLS     = errors.New("no TLS ClientHello")
	errTooLarge  = fmt.Errorf("a ClientHello of more than %d bytes", maxHello)
	errTooLate   = fmt.Errorf("no whole ClientHello within %s", helloTimeout)
	errEncrypted = errors.New("a ClientHello with an encrypted server name (ECH)")
	errNoName    = errors.New("no server name")
	errNames     = errors.New("more than one server name")
	errAddress   = errors.New("an IP address as the server name")
	errHostname  = errors.New("a server name that is no host name")
)

// hello reads a ClientHello. It holds what was read: no more than maxHello bytes, in a buffer that grows with it.
type hello struct {
	raw   []byte
	start int // of the hello's first record
	end   int // of its records that are whole
	head  [4]byte
	got   int // bytes of the message
	// again: it is the second hello. Records without a meaning after a HelloRetryRequest may precede it.
	again   bool
	claimed string
}

// large tells whether the buffer is one of those whose number is bounded.
func (h *hello) large() bool { return cap(h.raw) > firstRead }

// read reads until the hello is whole, and returns its server name.
func (h *hello) read(from io.Reader) (fqdn.Name, error) {
	for {
		whole, err := h.scan()
		if err != nil {
			return "", err
		}
		if whole {
			return h.name()
		}
		if len(h.raw) == cap(h.raw) {
			if len(h.raw) >= maxHello {
				return "", errTooLarge
			}
			grown := make([]byte, len(h.raw), min(max(firstRead, 2*len(h.raw)), maxHello))
			copy(grown, h.raw)
			h.raw = grown
		}
		n, err := from.Read(h.raw[len(h.raw):cap(h.raw)])
		h.raw = h.raw[:len(h.raw)+n]
		switch {
		case n > 0:
		case isTimeout(err):
			return "", errTooLate
		case err != nil:
			return "", fmt.Errorf("the connection ended before a whole ClientHello: %w", err)
		}
	}
}

// scan goes on to the end of the last whole record. It tells whether the hello ends there.
func (h *hello) scan() (whole bool, err error) {
	for h.end < len(h.raw) {
		b := h.raw[h.end:]
		skip := h.again && h.got == 0 && (b[0] == changeCipherSpec || b[0] == applicationData)
		if b[0] != handshake && !skip {
			return false, errNoTLS
		}
		if len(b) < recordHeader {
			return false, nil
		}
		size := int(binary.BigEndian.Uint16(b[3:]))
		switch {
		case b[1] != 3 || size == 0 || size > maxRecord:
			return false, errNoTLS
		case h.end+recordHeader+size > maxHello:
			return false, errTooLarge
		case len(b) < recordHeader+size:
			return false, nil
		}
		h.end += recordHeader + size
		if skip {
			h.start = h.end
			continue
		}
		copy(h.head[min(h.got, len(h.head)):], b[recordHeader:recordHeader+size])
		h.got += size
		if h.head[0] != clientHello {
			return false, errNoTLS
		}
		if h.got < len(h.head) {
			continue
		}
		switch n := len(h.head) + int(binary.BigEndian.Uint32(h.head[:])&0xffffff); {
		case n > maxHello:
			return false, errTooLarge
		case h.got > n:
			return false, errNoTLS // another message in the same record
		case h.got == n:
			return true, nil
		}
	}
	return false, nil
}

// helloConn is what crypto/tls reads a hello from. Its alerts go nowhere.
type helloConn struct {
	net.Conn
	from bytes.Reader
	info *tls.ClientHelloInfo
}

func (c *helloConn) Read(b []byte) (int, error)  { return c.from.Read(b) }
func (c *helloConn) Write(b []byte) (int, error) { return len(b), nil }

// helloConfig ends a handshake as soon as the hello is read.
var helloConfig = &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
	info.Conn.(*helloConn).info = info
	return nil, io.EOF
}}

// name returns the one server name of a whole hello.
func (h *hello) name() (fqdn.Name, error) {
	var c helloConn
	c.from.Reset(h.raw[h.start:h.end])
	_ = tls.Server(&c, helloConfig).Handshake() // an error in any case
	if c.info == nil {
		return "", errNoTLS
	}
	name := c.info.ServerName
	h.claimed = name[:min(len(name), maxClaimed)]
	switch {
	case slices.Contains(c.info.Extensions, encryptedClientHello), slices.Contains(c.info.Extensions, encryptedServerName):
		return "", errEncrypted
	case name == "":
		return "", errNoName
	case !bytes.Equal(h.serverNames(), oneName(name)):
		return "", errNames
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return "", errAddress
	}
	for _, b := range []byte(name) {
		if (b|0x20 < 'a' || b|0x20 > 'z') && (b < '0' || b > '9') && b != '-' && b != '_' && b != '.' {
			return "", errHostname
		}
	}
	parsed, err := fqdn.ParseName(name)
	if err != nil {
		return "", errHostname
	}
	return parsed, nil
}

// oneName is the data of a server_name extension with one host name.
func oneName(name string) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(3+len(name)))
	b = binary.BigEndian.AppendUint16(append(b, 0), uint16(len(name)))
	return append(b, name...)
}

// serverNames returns the data of the server_name extension, which crypto/tls has found well-formed: it
// passes over names of other types.
func (h *hello) serverNames() []byte {
	var m []byte
	for at := h.start; at < h.end; {
		next := at + recordHeader + int(binary.BigEndian.Uint16(h.raw[at+3:]))
		m = append(m, h.raw[at+recordHeader:next]...)
		at = next
	}
	m = m[len(h.head)+2+32:] // version and random
	m = m[1+int(m[0]):]      // session
	m = m[2+int(binary.BigEndian.Uint16(m)):]
	m = m[1+int(m[0]):]          // compression methods, after cipher suites
	for m = m[2:]; len(m) > 0; { // extensions
		size := int(binary.BigEndian.Uint16(m[2:]))
		if binary.BigEndian.Uint16(m) == 0 {
			return m[4 : 4+size]
		}
		m = m[4+size:]
	}
	return nil
}

// retryRandom is the random of a ServerHello that is a HelloRetryRequest (RFC 8446, section 4.1.3).
var retryRandom = []byte("\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c")

// retryAt is where it begins: behind the headers of record and message, and the version.
const retryAt = recordHeader + 4 + 2

// readAnswer reads a server's first bytes: as many as show whether they are a HelloRetryRequest. At the
// end of the connection there may be none.
func readAnswer(from io.Reader) ([]byte, error) {
	b := make([]byte, 0, 1<<10)
	for {
		n, err := from.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil || len(b) >= retryAt+len(retryRandom) || len(b) > 0 && b[0] != handshake {
			return b, err
		}
	}
}

func isRetryRequest(b []byte) bool {
	return len(b) >= retryAt && b[0] == handshake && b[recordHeader] == serverHello && bytes.HasPrefix(b[retryAt:], retryRandom)
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
