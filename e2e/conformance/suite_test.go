package conformance

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	api "sigs.k8s.io/network-policy-api/apis/v1beta1"
	reports "sigs.k8s.io/network-policy-api/conformance/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	timeouts "sigs.k8s.io/network-policy-api/conformance/utils/config"
	"sigs.k8s.io/network-policy-api/conformance/utils/flags"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/e2e/conformance/names"
)

// The flags beside those of the upstream suite (package flags) and -kubeconfig.
var (
	requestTimeout = flag.Duration("request-timeout", 3*time.Second, "how long one connection of a pod may take; a denied one takes this long")
	pokeTimeout    = flag.Duration("poke-timeout", 20*time.Second, "how long an expected outcome may take to come")

	image     = flag.String("image", "", "the image of this module, for the suite of names")
	zone      = flag.String("zone", "conformance.test", "a domain of the tests, for the suite of names")
	coreDNS   = flag.String("coredns", "kube-system/coredns", "CoreDNS's ConfigMap and Deployment; empty where the zone is forwarded by other means")
	resolvers = flag.String("resolvers", "", "`networks` of the resolver that pods ask, beside the pods of kube-system, with commas between")
	domain    = flag.String("cluster-domain", "cluster.local", "the domain of Services and pods")
	outside   = flag.String("outside", "", "a `network` of IPv4 beyond the cluster whose addresses echo lines, for the suite of names")
	outside6  = flag.String("outside6", "", "the same of IPv6")
	ports     = flag.String("ports", "80,8080", "two TCP ports of them")
	slack     = flag.Duration("ttl-slack", 2*time.Minute, "how long an address may be open beyond the TTL")
)

// options are those of a suite for the cluster of -kubeconfig. Without the flag the test is
// skipped: what KUBECONFIG names is not meant by a plain go test.
func options(t *testing.T) suite.Options {
	t.Helper()
	if flag.Lookup("kubeconfig").Value.String() == "" {
		t.Skip("there is no cluster: give -kubeconfig, see README.md")
	}
	cfg, err := config.GetConfig()
	require.NoError(t, err, "error loading Kubernetes config")
	cfg.QPS, cfg.Burst = 100, 200
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err, "error initializing Kubernetes client")
	require.NoError(t, api.Install(c.Scheme()), "error installing api scheme")
	require.NoError(t, apiextensionsv1.AddToScheme(c.Scheme()), "error installing the scheme of CRDs")
	set, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err, "error when creating Kubernetes ClientSet")
	return suite.Options{
		Client: c, ClientSet: set, KubeConfig: *cfg, Debug: *flags.ShowDebug, CleanupBaseResources: *flags.CleanupBaseResources,
		SupportedFeatures: suite.ParseSupportedFeatures(*flags.SupportedFeatures), ExemptFeatures: suite.ParseSupportedFeatures(*flags.ExemptFeatures),
		EnableAllSupportedFeatures: *flags.EnableAllSupportedFeatures,
		TimeoutConfig:              timeouts.TimeoutConfig{RequestTimeout: *requestTimeout, PokeTimeout: *pokeTimeout, PokeInterval: 50 * time.Millisecond},
	}
}

func implementation(t *testing.T) reports.Implementation {
	t.Helper()
	i, err := suite.ParseImplementation(*flags.ImplementationOrganization, *flags.ImplementationProject, *flags.ImplementationURL,
		*flags.ImplementationVersion, *flags.ImplementationContact, *flags.ImplementationAdditionalInformation)
	require.NoError(t, err)
	return *i
}

// split reads a list with commas.
func split(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ","), func(s string) bool { return s == "" })
}

// TestUpstream runs the upstream suite, with all features unless flags say otherwise.
func TestUpstream(t *testing.T) {
	o := options(t)
	if o.SupportedFeatures == nil {
		o.SupportedFeatures = suite.AllFeatures.Clone()
	}
	s, err := suite.NewConformanceProfileTestSuite(suite.ConformanceProfileOptions{
		Options: o, Implementation: implementation(t), ConformanceProfiles: sets.New(suite.CNPConformanceProfileName),
	})
	require.NoError(t, err)
	s.Setup(t)
	require.NoError(t, s.Run(t, tests.ConformanceTests))
	report, err := s.Report()
	require.NoError(t, err)
	write(t, "clusternetworkpolicy.yaml", report)
}

// TestNames runs the suite of package names, with all its features unless flags say
// otherwise.
func TestNames(t *testing.T) {
	o := options(t)
	supported := suite.ParseSupportedFeatures(*flags.SupportedFeatures)
	if supported == nil {
		supported = sets.New(names.Features...)
	}
	supported = supported.Difference(o.ExemptFeatures)
	// The upstream suite's Setup brings its own pods up for its own features.
	o.SupportedFeatures, o.EnableAllSupportedFeatures = supported, false
	o.ExemptFeatures = suite.StandardFeatures.Clone()
	s := suite.New(o)
	e := names.New(t, s, environment(t))
	all := e.Tests()
	results := newResults(supported)
	t.Run("tests", func(t *testing.T) {
		for i := range all {
			t.Run(all[i].ShortName, func(t *testing.T) {
				t.Cleanup(func() { results.add(t, &all[i]) })
				all[i].Run(t, s)
			})
		}
	})
	write(t, "domainnames.yaml", results.report(implementation(t)))
}

func environment(t *testing.T) names.Options {
	t.Helper()
	o := names.Options{Image: *image, Zone: *zone, CoreDNS: *coreDNS, Resolvers: split(*resolvers), ClusterDomain: *domain, Slack: *slack}
	require.NotEmpty(t, o.Image, "-image is needed")
	var err error
	o.Outside, err = netip.ParsePrefix(*outside)
	require.NoError(t, err, "-outside is needed")
	require.LessOrEqual(t, o.Outside.Bits(), 23, "-outside has too few addresses")
	require.True(t, o.Outside.Addr().Is4(), "-outside is a network of IPv4")
	if *outside6 != "" {
		o.Outside6, err = netip.ParsePrefix(*outside6)
		require.NoError(t, err, "-outside6")
	}
	_, err = fmt.Sscanf(*ports, "%d,%d", &o.Port, &o.OtherPort)
	require.NoError(t, err, "-ports")
	return o
}

// write writes a report into the folder of -report-output, if there is one.
func write(t *testing.T, file string, report *reports.ConformanceReport) {
	t.Helper()
	text, err := yaml.Marshal(report)
	require.NoError(t, err)
	t.Logf("Conformance report:\n%s", text)
	if *flags.ReportOutput != "" {
		require.NoError(t, os.MkdirAll(*flags.ReportOutput, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(*flags.ReportOutput, file), text, 0o644))
	}
}

// apiVersion is that of upstream's reports.
var apiVersion = metav1.TypeMeta{APIVersion: "policy.networking.k8s.io/v1alpha1", Kind: "ConformanceReport"}
