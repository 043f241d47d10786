package explain

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestManyNames: an address with more names than a rule may hold gets a manifest that
// an API server takes, and a list that ends.
func TestManyNames(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.9")
	f := about(t, cart(), manifests(t, base))
	for i := range 3 * fqdnnp.MaxMatches {
		f.Seen = append(f.Seen, recent.Sighting{Pod: cart().PodRef, Name: policytest.Name(fmt.Sprintf("n%d.test", i)), Address: addr, Asked: noon.Add(-time.Duration(i) * time.Second)})
	}
	e := Explain(Question{To: target(t, "192.0.2.9:443")}, f)
	if e.Verdict != Denied || e.Advice == nil || len(e.Names) > fqdnnp.MaxMatches || !strings.Contains(strings.Join(e.Notes, ";"), "192.0.2.9 has 512 more names") {
		t.Fatalf("%s, %d names, notes %q", e.Verdict, len(e.Names), e.Notes)
	}
	more := manifests(t, e.Advice.Manifest)
	if problems := fqdnnp.Validate(more[0]); len(problems) > 0 || !strings.Contains(e.Advice.Manifest, "n0.test") {
		t.Errorf("%+v of\n%s", problems, e.Advice.Manifest)
	}
}

// TestManifestNames: for any name, the name of the manifest is valid.
func TestManifestNames(t *testing.T) {
	long := strings.Repeat("a", 60)
	for _, host := range []string{
		"bank.test", "_sip._tcp.bank.test", "a__.b.test", "__.b.test", "-a-.b-.test", "_", "-", strings.Join([]string{long, long, long, long}, "."),
		strings.Repeat("_.", 40) + "x.test", strings.Repeat("a-", 31) + "." + strings.Repeat("-b", 31) + "." + long + "." + long,
	} {
		if got := free(host, func(string) bool { return false }); len(validation.IsDNS1123Subdomain(got)) > 0 || len(got) > 210 {
			t.Errorf("%s: %q is no name of an object", host, got)
		}
	}
}

// TestSearchSuffix: an allowed name behind which a search list put a suffix is no name
// that a policy has to allow.
func TestSearchSuffix(t *testing.T) {
	for to, suffixed := range map[string]bool{
		"www.example.org.shop.svc.cluster.local:443": true,
		"www.example.org.svc.cluster.local:443":      true,
		"www.example.org.cluster.local:443":          true,
		"www.example.org.pay.svc.cluster.local:443":  false,
		"other.test.cluster.local:443":               false,
		"db.shop.svc.cluster.local:443":              false,
	} {
		e := Explain(Question{To: target(t, to)}, about(t, cart(), manifests(t, base)))
		got := strings.HasPrefix(e.Reason, "this is www.example.org with a search suffix")
		if e.Verdict != Denied || e.Advice == nil || got != suffixed || (e.Advice.Manifest == "") != suffixed || len(e.Notes) == 0 != suffixed {
			t.Errorf("%s: %s: %s, notes %q, %+v", to, e.Verdict, e.Reason, e.Notes, e.Advice)
		}
	}
}

// TestPointedAt: a name that no match covers may be open, since the answer for an
// allowed one pointed at it; then its question is not refused, whatever the port.
func TestPointedAt(t *testing.T) {
	f := about(t, cart(), manifests(t, base+"  dns: {unmatched: NXDomain}\n"))
	f.Open = []policy.GrantInfo{{Pod: cart().PodRef, Addr: netip.MustParseAddr("192.0.2.9"), Ports: "tcp/443", Name: policytest.Name("mail.test"), Until: noon.Add(time.Minute), By: "shop/base www.example.org"}}
	if e := Explain(Question{To: target(t, "mail.test:443")}, f); e.Verdict != Allowed {
		t.Errorf("%s: %s", e.Verdict, e.Reason)
	}
	e := Explain(Question{To: target(t, "mail.test:25")}, f)
	want := "an answer for an allowed name pointed at this one, which is open on tcp/443 until 2026-05-01T12:01:00Z, and not on tcp/25"
	if e.Verdict != Denied || e.Reason != want || e.Advice == nil || e.Advice.Manifest == "" {
		t.Errorf("%s: %s, %+v", e.Verdict, e.Reason, e.Advice)
	}
}

// TestContestedAddress: what policies allow, and that none selects the pod, says
// nothing where another pod claims its only address too.
func TestContestedAddress(t *testing.T) {
	for what, policies := range map[string]string{"selected": base, "audited": watch, "not selected": ""} {
		f := about(t, cart(), manifests(t, policies))
		f.Contested = f.Pod.IPs
		if e := Explain(Question{To: target(t, "www.example.org:443")}, f); e.Verdict != Denied || !strings.HasPrefix(e.Reason, "other pods claim 10.1.0.10 too") {
			t.Errorf("%s: %s: %s", what, e.Verdict, e.Reason)
		}
	}
	f := about(t, cart(), manifests(t, base))
	f.Pod.IPs = append(f.Pod.IPs, netip.MustParseAddr("2001:db8:1::10"))
	f.Contested = f.Pod.IPs[:1]
	if e := Explain(Question{To: target(t, "www.example.org:443")}, f); e.Verdict != OnceAsked {
		t.Errorf("with another address: %s: %s", e.Verdict, e.Reason)
	}
	f.Seen = []recent.Sighting{
		{Pod: f.Pod.PodRef, Name: policytest.Name("www.example.org"), Address: netip.MustParseAddr("192.0.2.9"), Asked: noon},
		{Pod: f.Pod.PodRef, Name: policytest.Name("www.example.org"), Address: netip.MustParseAddr("2001:db8::9"), Asked: noon},
	}
	for to, want := range map[string]Verdict{"192.0.2.9:443": Denied, "[2001:db8::9]:443": OnceAsked} {
		if e := Explain(Question{To: target(t, to)}, f); e.Verdict != want {
			t.Errorf("with another address of one family, to %s: %s: %s", to, e.Verdict, e.Reason)
		}
	}
}

// TestNotInForce: a policy that selects the pod and is not in force yet is not said to
// select others.
func TestNotInForce(t *testing.T) {
	for what, inForce := range map[string]string{"another policy": watch, "no policy": ""} {
		f := about(t, cart(), manifests(t, inForce))
		f.Policies = append(f.Policies, manifests(t, base)...)
		notes := strings.Join(Explain(Question{To: target(t, "www.example.org:443")}, f).Notes, ";")
		if !strings.Contains(notes, "shop/base covers www.example.org and selects the pod, but is not in force for it yet") || strings.Contains(notes, "does not select") {
			t.Errorf("%s: %q", what, notes)
		}
	}
}
