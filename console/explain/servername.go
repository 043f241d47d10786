package explain

import (
	"fmt"
	"slices"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// ServerNameOf returns what a rule says about the server name, as it is written.
func ServerNameOf(required bool) string {
	if !required {
		return ""
	}
	return string(v1alpha1.ServerNameRequire)
}

// Requires says behind a rule what it says about the server name.
func Requires(serverName string) string {
	if serverName == "" {
		return ""
	}
	return ", serverName: " + serverName
}

// checked answers for what is open by rules that require the server name.
func (in *inquiry) checked(how string, grants []Grant) {
	var names []string
	for _, g := range grants {
		if !slices.Contains(names, g.Name) {
			names = append(names, g.Name)
		}
	}
	in.settle(Checked, "%s on %s until %s; checked: the connection must begin with a TLS server name that is one of %s", how, grants[0].Ports, grants[0].until(), console.Listed(names, maxNames))
}

// onceAsked answers for a name that opens when the pod asks for it. Of manifests, the question is about a pod that has.
func (in *inquiry) onceAsked(m *policy.Match, n fqdn.Name, format string, args ...any) {
	reason, verdict := fmt.Sprintf(format, args...), OnceAsked
	if m.ServerName && !m.Audit {
		reason += fmt.Sprintf("; checked: the connection must begin with the TLS server name %s", n)
		if in.f.Unresolved {
			verdict = Checked
		}
	}
	in.settle(verdict, "%s", reason)
	in.again(n)
}

// opensNothing answers for a name of the cluster that a rule covers which requires the server name.
func (in *inquiry) opensNothing(m *policy.Match, n fqdn.Name) {
	in.settle(Denied, "%s covers %s, but requires the server name: such a rule opens no address of the cluster", in.quoted(m), n)
	in.do("write %s in a rule without serverName", n)
}

// insideCluster tells whether the address that is asked about is known to be of the cluster.
func (in *inquiry) insideCluster() bool {
	return in.f.Inside != "" || in.f.Services[in.to.Addr] != nil || in.podAt(in.to.Addr) != nil
}
