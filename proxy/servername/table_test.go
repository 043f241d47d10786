package servername

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// step is what a client does: it sends bytes in segments of a size, 0 for one.
type step struct {
	name    string
	send    []byte
	segment int
	then    func(c *net.TCPConn)
	// want is the denial's detail, "" if the connection is allowed.
	want string
	late bool // it is denied after the time of a hello
}

const (
	noTLS, noName, twoNames, address, encrypted = "no TLS ClientHello", "no server name", "more than one server name", "an IP address as the server name", "ECH"
	noHost, tooLarge, noGrant, tooLate, ended   = "no host name", "more than 16384 bytes", "no grant", "within 3s", "ended before"
)

func version(v uint16) []byte {
	return clientBytes(&tls.Config{ServerName: "good.test", MinVersion: v, MaxVersion: v})
}

// of13 is a message of good.test that is cut into records.
var of13 = modernMessage(names("good.test"))

func sized(total int) []byte {
	b := modern(names("good.test"))
	return modern(names("good.test"), padding(total-len(b)-4))
}

func hellos() []step {
	good := helloFor("good.test")
	sni := names("good.test")
	ech := extension{encryptedClientHello, append([]byte{0, 0, 1, 0, 1, 77}, slices.Concat(vector16(make([]byte, 32)), vector16(make([]byte, 144)))...)}
	return []step{
		{name: "crypto/tls", send: good},
		{name: "another granted name", send: helloFor("also.test")},
		{name: "TLS 1.0", send: version(tls.VersionTLS10)},
		{name: "TLS 1.1", send: version(tls.VersionTLS11)},
		{name: "TLS 1.2", send: version(tls.VersionTLS12)},
		{name: "TLS 1.3", send: version(tls.VersionTLS13)},
		{name: "SSL 3.0 with a name", send: record(handshake, message(clientHello, body(0x300, sni)))},
		{name: "upper case", send: modern(names("GOOD.Test"))},
		{name: "two segments", send: good, segment: len(good)/2 + 1},
		{name: "twenty segments", send: good, segment: len(good)/20 + 1},
		{name: "segments of one byte", send: good, segment: 1},
		{name: "two records", send: records(of13, len(of13)/2+1)},
		{name: "records of one byte", send: records(of13, 1)},
		{name: "a record of three bytes first", send: slices.Concat(record(handshake, of13[:3]), record(handshake, of13[3:]))},
		{name: "post-quantum key share", send: modern(share2(), sni)},
		{name: "16 KiB", send: sized(maxHello)},
		{name: "GREASE", send: modern(extension{0x0a0a, nil}, sni, extension{0xfafa, []byte{0}})},
		{name: "GREASE version and group", send: record(handshake, message(clientHello, body(0x303, versions(0x7a7a, 0x304), extension{10, vector16([]byte{0x8a, 0x8a, 0, 29})}, signatures, extension{51, vector16(slices.Concat([]byte{0x8a, 0x8a, 0, 1, 0}, []byte{0, 29, 0, 32}, make([]byte, 32)))}, sni)))},
		{name: "ALPN h2", send: clientBytes(&tls.Config{ServerName: "good.test", NextProtos: []string{"h2", "http/1.1"}})},
		{name: "resumption", send: modern(sni, extension{45, vector8([]byte{1})}, preShared())},
		{name: "session ticket of TLS 1.2", send: modern(sni, extension{35, make([]byte, 180)})},
		{name: "early data behind the hello", send: append(modern(sni, extension{42, nil}, preShared()), record(applicationData, make([]byte, 900))...)},
		{name: "name last", send: modern(padding(300), sni)},
		{name: "name first", send: record(handshake, message(clientHello, body(0x303, sni, versions(0x304), groups, signatures, share(29, 32))))},
		{name: "unknown extensions", send: modern(extension{0x4469, make([]byte, 5)}, sni, extension{0xff01, []byte{0}})},
		{name: "record version 3.3", send: bytes.Replace(good, []byte{22, 3, 1}, []byte{22, 3, 3}, 1)},

		{name: "name of another pod", send: helloFor("other.test"), want: noGrant},
		{name: "name that is not granted", send: helloFor("evil.test"), want: noGrant},
		{name: "parent of a granted name", send: helloFor("test"), want: noGrant},
		{name: "child of a granted name", send: helloFor("www.good.test"), want: noGrant},
		{name: "no name", send: modern(), want: noName},
		{name: "no name, crypto/tls", send: clientBytes(&tls.Config{}), want: noName},
		{name: "no extensions", send: record(handshake, message(clientHello, body(0x303))), want: noName},
		{name: "empty name", send: modern(names("")), want: noTLS},
		{name: "empty list of names", send: modern(names()), want: noTLS},
		{name: "empty server_name", send: modern(extension{0, nil}), want: noTLS},
		{name: "two names", send: modern(names("good.test", "evil.test")), want: noTLS},
		{name: "the same name twice", send: modern(names("good.test", "good.test")), want: noTLS},
		{name: "a name of another type first", send: modern(names("#evil.test", "good.test")), want: twoNames},
		{name: "a name of another type behind", send: modern(names("good.test", "#evil.test")), want: twoNames},
		{name: "a name of another type alone", send: modern(names("#good.test")), want: noName},
		{name: "the extension twice", send: modern(sni, names("evil.test")), want: noTLS},
		{name: "the extension twice, same name", send: modern(sni, sni), want: noTLS},
		{name: "bytes behind the list of names", send: modern(extension{0, append(sni.data, 0)}), want: noTLS},
		{name: "IPv4 address", send: modern(names("127.0.0.1")), want: address},
		{name: "IPv6 address", send: modern(names("::1")), want: address},
		{name: "IPv6 address in brackets", send: modern(names("[::1]")), want: noHost},
		{name: "trailing dot", send: modern(names("good.test.")), want: noTLS},
		{name: "leading dot", send: modern(names(".good.test")), want: noHost},
		{name: "zero byte behind", send: modern(names("good.test\x00")), want: noHost},
		{name: "zero byte within", send: modern(names("good.test\x00.evil.test")), want: noHost},
		{name: "zero byte before", send: modern(names("evil.test\x00good.test")), want: noHost},
		{name: "escape", send: modern(names(`good\.test`)), want: noHost},
		{name: "port", send: modern(names("good.test:443")), want: noHost},
		{name: "space", send: modern(names(" good.test")), want: noHost},
		{name: "wildcard", send: modern(names("*.test")), want: noHost},
		{name: "IDN as UTF-8", send: modern(names("gööd.test")), want: noHost},
		{name: "IDN as A-label", send: modern(names("xn--gd-fkaa.test")), want: noGrant},
		{name: "long name", send: modern(names(strings.Repeat("a.", 200) + "good.test")), want: noHost},
		{name: "ECH, outer name granted", send: modern(sni, ech), want: encrypted},
		{name: "ECH GREASE", send: modern(ech, sni), want: encrypted},
		{name: "ECH, outer name not granted", send: modern(names("public.test"), ech), want: encrypted},
		{name: "ECH of the inner hello", send: modern(sni, extension{encryptedClientHello, []byte{1}}), want: encrypted},
		{name: "empty ECH", send: modern(sni, extension{encryptedClientHello, nil}), want: encrypted},
		{name: "encrypted_server_name of a draft", send: modern(sni, extension{encryptedServerName, make([]byte, 300)}), want: encrypted},
		{name: "over 16 KiB", send: sized(maxHello + 1), want: tooLarge},
		{name: "over 16 KiB announced", send: records(message(clientHello, make([]byte, 20000)), 1000)[:5000], want: tooLarge},
		{name: "SSLv2 style", send: append([]byte{0x80, 46, 1, 3, 1, 0, 21, 0, 0, 0, 16}, make([]byte, 37)...), want: noTLS},
		{name: "HTTP", send: []byte("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"), want: noTLS},
		{name: "SSH", send: []byte("SSH-2.0-OpenSSH_9.9\r\n"), want: noTLS},
		{name: "PROXY protocol before the hello", send: append([]byte("PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n"), good...), want: noTLS},
		{name: "an alert before the hello", send: append(record(21, []byte{1, 0}), good...), want: noTLS},
		{name: "an alert within the hello", send: slices.Concat(record(handshake, of13[:40]), record(21, []byte{1, 0}), record(handshake, of13[40:])), want: noTLS},
		{name: "ChangeCipherSpec before the hello", send: append(record(changeCipherSpec, []byte{1}), good...), want: noTLS},
		{name: "application data before the hello", send: append(record(applicationData, make([]byte, 20)), good...), want: noTLS},
		{name: "an empty record first", send: append(record(handshake, nil), good...), want: noTLS},
		{name: "two hellos in a record", send: record(handshake, slices.Concat(of13, modernMessage(names("evil.test")))), want: noTLS},
		{name: "another message first", send: record(handshake, append(message(0, nil), of13...)), want: noTLS},
		{name: "a ServerHello", send: record(handshake, message(serverHello, make([]byte, 70))), want: noTLS},
		{name: "bytes behind the extensions", send: record(handshake, message(clientHello, append(body(0x303, sni), 0))), want: noTLS},
		{name: "nothing", want: tooLate, late: true},
		{name: "half a hello", send: good[:len(good)/2], want: tooLate, late: true},
		{name: "a hello but its last byte", send: good[:len(good)-1], want: tooLate, late: true},
		{name: "half a hello and the end", send: good[:60], then: func(c *net.TCPConn) { _ = c.CloseWrite() }, want: ended},
		{name: "half a hello and a reset", send: good[:60], then: func(c *net.TCPConn) { time.Sleep(10 * time.Millisecond); reset(c) }, want: ended},
		{name: "the end", then: func(c *net.TCPConn) { _ = c.CloseWrite() }, want: ended},
	}
}

func share2() extension { return extension{0x3a3a, make([]byte, 1800)} }

func preShared() extension {
	return extension{41, slices.Concat(vector16(slices.Concat(vector16(make([]byte, 100)), make([]byte, 4))), vector16(vector8(make([]byte, 32))))}
}

// TestHellos: a hello is allowed with exactly one name that is granted. Nothing of a denied connection arrives.
func TestHellos(t *testing.T) {
	all := hellos()
	if len(all) < 60 {
		t.Fatal(len(all), "hellos")
	}
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, corefile.DefaultRelayLimits, func(o *Options) {
				if s.late {
					o.helloTimeout = 0
				}
			})
			c := l.dial()
			s.play(c)
			if s.want != "" {
				d := l.denial()
				diff.Equal(t, ReasonServerName, d.Reason)
				diff.Has(t, s.want, d.Detail)
				diff.Equal(t, podA, d.Pod)
				if s.want != ended && !isReset(c) {
					t.Error("no reset")
				}
				l.quiet()
				return
			}
			server := l.accepted()
			fatal.If(t, write(server, record(handshake, message(serverHello, make([]byte, 70))))) // the server answers
			got := make([]byte, len(s.send))
			_, err := io.ReadFull(server, got)
			fatal.If(t, err)
			if !bytes.Equal(s.send, got) {
				t.Error("the destination got something else")
			}
		})
	}
}

func (s step) play(c *net.TCPConn) {
	size := s.segment
	if size == 0 {
		size = max(1, len(s.send))
	}
	for part := range slices.Chunk(s.send, size) {
		_ = write(c, part) // it may be reset
		if s.segment > 1 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	if s.then != nil {
		s.then(c)
	}
}

// TestHelloInTwoParts: where a hello is cut does not matter, neither in segments nor in records.
func TestHelloInTwoParts(t *testing.T) {
	good, evil := of13, modernMessage(names("good.test", "#x"))
	for at := 1; at < len(good); at++ {
		for what, b := range map[string][]byte{"segment": record(handshake, good), "record": slices.Concat(record(handshake, good[:at]), record(handshake, good[at:]))} {
			var h hello
			name, err := h.read(io.MultiReader(bytes.NewReader(b[:at]), bytes.NewReader(b[at:])))
			if err != nil || name.String() != "good.test" || h.end != len(b) {
				t.Fatalf("%s %d: %s, %v, %d of %d", what, at, name, err, h.end, len(b))
			}
		}
	}
	for at := 1; at < len(evil); at++ {
		var h hello
		if name, err := h.read(bytes.NewReader(slices.Concat(record(handshake, evil[:at]), record(handshake, evil[at:])))); err == nil {
			t.Fatal(at, name)
		}
	}
}

// TestHelloMemory: a buffer grows with what is sent, not with what is announced.
func TestHelloMemory(t *testing.T) {
	for n, want := range map[int]int{0: 0, 5: firstRead, 1800: firstRead, firstRead + 1: 2 * firstRead, 9000: maxHello, maxHello - 1: maxHello} {
		h := hello{}
		b := sized(maxHello)[:n]
		_, err := h.read(&slow{b})
		diff.Equal(t, true, err != nil)
		if cap(h.raw) > max(want, firstRead) {
			t.Errorf("%d bytes are in a buffer of %d", n, cap(h.raw))
		}
	}
	if all := corefile.DefaultRelayLimits.Hellos * maxHello; all != 16<<20 {
		t.Errorf("hellos take up to %d bytes", all)
	}
}

// slow reads byte by byte.
type slow struct{ left []byte }

func (s *slow) Read(b []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	b[0], s.left = s.left[0], s.left[1:]
	return 1, nil
}

// FuzzHello: what is read never is beyond the bounds, and a name that the relay reads is the one that crypto/tls reads,
// of a hello that is whole and of one message.
func FuzzHello(f *testing.F) {
	for _, s := range hellos() {
		f.Add(s.send)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		name, err := h.read(bytes.NewReader(b))
		var again hello
		name2, err2 := again.read(&slow{b})
		if name != name2 || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("at once %q, %v; byte by byte %q, %v", name, err, name2, err2)
		}
		if len(h.raw) > maxHello || h.end > len(h.raw) {
			t.Fatal(len(h.raw), h.end)
		}
		if err != nil {
			return
		}
		if !bytes.Equal(b[:h.end], h.raw[:h.end]) || h.got != h.end-h.start-recordHeader*bytesRecords(h.raw[:h.end]) {
			t.Fatal("another hello")
		}
		if !strings.EqualFold(name.String(), h.claimed) || name == "" {
			t.Fatalf("%q of %q", name, h.claimed)
		}
	})
}

func bytesRecords(b []byte) (n int) {
	for ; len(b) > 0; n++ {
		b = b[recordHeader+int(b[3])<<8+int(b[4]):]
	}
	return n
}
