package scenarios

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestForgedQueries sends queries to the resolver in every shape that might pass by
// interception, from a pod that may ask nothing: no question reaches the resolver.
// Nor does a segment that begins a connection to it. From an unselected pod the same
// shapes do, unless the kernel itself does not forward them.
func TestForgedQueries(t *testing.T) {
	staged(t, onEach, newForgeStage, func(t *testing.T, f *forgeStage) {
		f.apply(map[string]string{"no.yaml": policy("allow-nothing", "podSelector: {matchLabels: {app: closed}}\ndns: {unmatched: Refuse}")})
		type question struct {
			what string
			want bool
		}
		questions, segments := map[string]question{}, []sent(nil)
		for _, v6 := range []bool{false, true} {
			for shape, forge := range queryShapes(v6, 17) {
				for _, pod := range []string{"b", "free"} {
					src, resolver := f.Pod(pod).Addr4, lab.Resolver4
					if v6 {
						src, resolver = f.Pod(pod).Addr6, lab.Resolver6
					}
					w := f.way(src, resolver)
					name := fmt.Sprintf("q%d.forged.test.", w.no)
					query := new(dns.Msg).SetQuestion(name, dns.TypeA)
					// Long enough for fragments, and the same for all.
					query.SetEdns0(1232, false)
					wire, err := query.Pack()
					fatal.If(t, err)
					f.send(pod, w, forge(w, lab.UDP(w.from(w.own()), w.to(53), wire)))
					questions[name+" A"] = question{fmt.Sprintf("a query from %s %s", src, shape), pod == "free"}
				}
			}
			for shape, forge := range queryShapes(v6, 6) {
				for _, flags := range []byte{lab.SYN, lab.SYN | lab.PSH | lab.URG, lab.SYN | lab.FIN, lab.SYN | 0xc0} { // with ECN (RFC 3168)
					for _, pod := range []string{"b", "free"} {
						w := f.way(f.Pod(pod).Addr4, lab.Resolver4)
						if v6 {
							w = f.way(f.Pod(pod).Addr6, lab.Resolver6)
						}
						f.send(pod, w, forge(w, lab.TCP(w.from(w.own()), w.to(53), flags, bytes.Repeat(w.token(), 3))))
						segments = append(segments, sent{fmt.Sprintf("a segment with the flags %#x from %s %s", flags, w.src, shape), w, pod == "free"})
					}
				}
			}
		}
		for until := time.Now().Add(lab.Limit); ; time.Sleep(10 * time.Millisecond) {
			asked, missing := f.outside.Asked(), ""
			for q, s := range questions {
				if s.want && !slices.Contains(asked, q) {
					missing = s.what
				}
			}
			if missing == "" {
				break
			}
			if time.Now().After(until) {
				t.Errorf("%s did not arrive: the test proves less than it could", missing)
				break
			}
		}
		f.judge(segments)
		for _, q := range f.outside.Asked() {
			if s, ours := questions[q]; ours && !s.want {
				t.Errorf("%s reached the resolver", s.what)
			}
		}
	})
}

// queryShapes are ways to carry one UDP datagram or TCP segment that the kernel forwards.
func queryShapes(v6 bool, proto byte) map[string]func(w way, b []byte) [][]byte {
	shapes := map[string]func(w way, b []byte) [][]byte{
		"as it is":                        func(w way, b []byte) [][]byte { return w.packet(proto, b) },
		"in two fragments":                func(w way, b []byte) [][]byte { return w.fragments(proto, b, [2]int{0, 24}, [2]int{24, 99}) },
		"in fragments, the last at first": func(w way, b []byte) [][]byte { return w.fragments(proto, b, [2]int{24, 99}, [2]int{0, 24}) },
		"after a fragment of another": func(w way, b []byte) [][]byte {
			other := w
			other.no += 40000
			return append(other.fragments(proto, b, [2]int{24, 99}), w.packet(proto, b)...)
		},
	}
	if v6 {
		shapes["an atomic fragment"] = func(w way, b []byte) [][]byte { return w.packet(44, lab.Fragment6(proto, 0, false, w.no, b)) }
		shapes["behind destination options"] = func(w way, b []byte) [][]byte {
			return w.packet(60, lab.Extension(proto, []byte{1, 4, 0, 0, 0, 0}, b))
		}
		shapes["behind hop-by-hop options"] = func(w way, b []byte) [][]byte {
			return w.packet(0, lab.Extension(proto, []byte{1, 4, 0, 0, 0, 0}, b))
		}
		shapes["behind both, in an atomic fragment"] = func(w way, b []byte) [][]byte {
			inner := lab.Fragment6(60, 0, false, w.no, lab.Extension(proto, []byte{1, 4, 0, 0, 0, 0}, b))
			return w.packet(0, lab.Extension(44, []byte{1, 4, 0, 0, 0, 0}, inner))
		}
		return shapes
	}
	for name, options := range map[string][]byte{"record route": {7, 7, 4, 0, 0, 0, 0, 0}, "router alert": {148, 4, 0, 0}, "timestamps": {68, 8, 5, 0, 0, 0, 0, 0}} {
		shapes["with "+name] = func(w way, b []byte) [][]byte {
			return [][]byte{lab.Packet{Src: w.src, Dst: w.dst, Proto: proto, Payload: b, Options: options}.Bytes()}
		}
	}
	if proto == 17 {
		shapes["without a checksum"] = func(w way, b []byte) [][]byte {
			b[6], b[7] = 0, 0
			return w.packet(proto, b)
		}
	}
	return shapes
}
