package convert

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// upstream are the fields that the types of the sources have, as their APIs spell them.
var upstream = map[string]struct {
	of     any
	fields string
}{
	"ciliumPolicy": {ciliumPolicy{}, `spec specs endpointSelector nodeSelector ingress ingressDeny egress egressDeny labels
		enableDefaultDeny description log toFQDNs matchName matchPattern toPorts ports port endPort protocol rules http kafka l7proto l7 dns
		serverNames terminatingTLS originatingTLS listener toEndpoints toRequires toCIDR toCIDRSet toEntities toServices toGroups toNodes
		icmps authentication`},
	"gkePolicy": {gkePolicy{}, `spec podSelector ingress egress matches name pattern to fqdns ports protocol port endPort policyTypes`},
	"calicoPolicy": {calicoPolicy{}, `spec tier order ingress egress selector types serviceAccountSelector namespaceSelector doNotTrack preDNAT
		applyOnForward performanceHints action ipVersion protocol icmp notProtocol notICMP source destination http metadata nets services ports
		domains notNets notSelector notPorts serviceAccounts`},
	"calicoHostEndpoint": {calicoHostEndpoint{}, `spec node interfaceName expectedIPs profiles ports`},
	"antreaPolicy": {antreaPolicy{}, `spec tier priority appliedTo ingress egress podSelector namespaceSelector externalEntitySelector group
		serviceAccount service nodeSelector action ports protocol port endPort sourcePort sourceEndPort protocols l7Protocols from to fqdn ipBlock
		cidr except namespaces scope toServices name enableLogging logLabel`},
	"awsPolicy": {awsPolicy{}, `spec podSelector ingress egress to domainNames ipBlock namespaceSelector ports protocol port endPort policyTypes`},
	"awsClusterPolicy": {awsClusterPolicy{}, `spec tier priority subject namespaces pods namespaceSelector podSelector ingress egress name action
		to nodes networks domainNames ports portNumber protocol port portRange start end namedPort`},
	"ovnFirewall": {ovnFirewall{}, `spec egress type to cidrSelector dnsName nodeSelector ports protocol port`},
	"istioEntry": {istioEntry{}, `spec hosts addresses ports number protocol name targetPort location resolution endpoints workloadSelector
		exportTo subjectAltNames`},
}

// TestFields: each field of a source's types has a JSON name, spelled as the source's API spells it. Without
// one the strict reader knows the field by its Go name alone, and refuses every manifest that has it.
func TestFields(t *testing.T) {
	for name, u := range upstream {
		want := map[string]bool{"apiVersion": true, "kind": true, "metadata": true, "status": true}
		for field := range strings.FieldsSeq(u.fields) {
			want[field] = true
		}
		found := map[string]bool{}
		fieldsOf(t, name, reflect.TypeOf(u.of), found)
		diff.Error(t, want, found, name, "its API (-want), its type (+got)")
	}
}

// fieldsOf collects the JSON names of a type's fields, and of the types in it.
func fieldsOf(t *testing.T, at string, of reflect.Type, found map[string]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		fieldsOf(t, at, of.Elem(), found)
	case reflect.Struct:
		if of.Name() == "IntOrString" || of.Name() == "LabelSelector" { // of Kubernetes itself
			return
		}
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && name == "" {
				fieldsOf(t, at, f.Type, found)
				continue
			}
			if name == "" {
				t.Errorf("%s.%s has no JSON name", at, f.Name)
			}
			found[name] = true
			fieldsOf(t, at+"."+f.Name, f.Type, found)
		}
	}
}

// TestFieldsOfEverySource: TestFields has each type that embeds head.
func TestFieldsOfEverySource(t *testing.T) {
	files, err := filepath.Glob("*.go")
	fatal.If(t, err)
	var known, found []string
	for name := range upstream {
		known = append(known, name)
	}
	inspect := func(n ast.Node) bool {
		spec, _ := n.(*ast.TypeSpec)
		if spec == nil {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				if of, ok := f.Type.(*ast.Ident); ok && len(f.Names) == 0 && of.Name == "head" {
					found = append(found, spec.Name.Name)
				}
			}
		}
		return true
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		fatal.If(t, err)
		ast.Inspect(file, inspect)
	}
	slices.Sort(known)
	slices.Sort(found)
	diff.Error(t, known, found)
}
