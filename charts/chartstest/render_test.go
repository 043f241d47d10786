// Package chartstest renders the Helm chart with Helm's own engine and looks at
// every object. It is a module of its own so that Helm stays out of the agent's
// dependencies.
package chartstest

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	chartPath = "../namegate"
	namespace = "namegate-system"
)

// object is any object that a chart renders.
type object interface{ GetName() string }

// monitor is the part of a ServiceMonitor that the chart writes.
type monitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port        string `json:"port"`
			Path        string `json:"path"`
			Interval    string `json:"interval"`
			Relabelings []struct {
				SourceLabels []string `json:"sourceLabels"`
				TargetLabel  string   `json:"targetLabel"`
			} `json:"relabelings"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// kinds makes an empty object of every kind that the chart may render.
var kinds = map[string]func() object{
	"v1/ServiceAccount": func() object { return &corev1.ServiceAccount{} },
	"v1/ConfigMap":      func() object { return &corev1.ConfigMap{} },
	"v1/Service":        func() object { return &corev1.Service{} },
	"apps/v1/DaemonSet": func() object { return &appsv1.DaemonSet{} },
	"batch/v1/Job":      func() object { return &batchv1.Job{} },
	"rbac.authorization.k8s.io/v1/ClusterRole":                         func() object { return &rbacv1.ClusterRole{} },
	"rbac.authorization.k8s.io/v1/ClusterRoleBinding":                  func() object { return &rbacv1.ClusterRoleBinding{} },
	"rbac.authorization.k8s.io/v1/Role":                                func() object { return &rbacv1.Role{} },
	"rbac.authorization.k8s.io/v1/RoleBinding":                         func() object { return &rbacv1.RoleBinding{} },
	"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy":        func() object { return &admissionv1.ValidatingAdmissionPolicy{} },
	"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding": func() object { return &admissionv1.ValidatingAdmissionPolicyBinding{} },
	"apiextensions.k8s.io/v1/CustomResourceDefinition":                 func() object { return &apiextensionsv1.CustomResourceDefinition{} },
	"monitoring.coreos.com/v1/ServiceMonitor":                          func() object { return &monitor{} },
	"monitoring.coreos.com/v1/PrometheusRule":                          func() object { return &alerts{} },
}

// rendered is an installation: the objects by "Kind/name", the objects of hooks, and the
// notes.
type rendered struct {
	objects, hooks map[string]object
	notes          string
}

// values reads a piece of YAML as `helm install --values` does.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	v, err := loader.LoadValues(strings.NewReader(text))
	fatal.If(t, err)
	return v
}

// install renders the chart as `helm install NAME` would, without an API server.
func install(t *testing.T, name, text string) (*release.Release, error) {
	t.Helper()
	return installOn(t, "v1.29.0", name, text) // the oldest that the chart names
}

// installOn does so for a version of Kubernetes.
func installOn(t *testing.T, kubernetes, name, text string) (*release.Release, error) {
	t.Helper()
	chart, err := loader.Load(chartPath)
	fatal.If(t, err)
	c := action.NewConfiguration()
	c.SetLogger(slog.NewTextHandler(io.Discard, nil))
	version, err := common.ParseKubeVersion(kubernetes)
	fatal.If(t, err)
	i := action.NewInstall(c)
	i.KubeVersion = version
	i.DryRunStrategy, i.ReleaseName, i.Namespace = action.DryRunClient, name, namespace
	r, err := i.Run(chart, values(t, text))
	if err != nil {
		return nil, err
	}
	return r.(*release.Release), nil
}

// render demands that the values are good, and that every object decodes strictly.
func render(t *testing.T, text string) rendered {
	t.Helper()
	return renderAs(t, "namegate", text)
}

func renderAs(t *testing.T, name, text string) rendered {
	t.Helper()
	r, err := install(t, name, text)
	if err != nil {
		t.Fatalf("%v, with the values\n%s", err, text)
	}
	return objectsOf(t, r)
}

// objectsOf decodes the objects of a release.
func objectsOf(t *testing.T, r *release.Release) rendered {
	t.Helper()
	out := rendered{map[string]object{}, map[string]object{}, r.Info.Notes}
	for _, doc := range strings.Split("\n"+r.Manifest, "\n---\n") {
		add(t, out.objects, doc)
	}
	for _, h := range r.Hooks {
		add(t, out.hooks, h.Manifest)
	}
	return out
}

func add(t *testing.T, into map[string]object, doc string) {
	t.Helper()
	o, kind, err := decode(doc)
	if err != nil {
		t.Fatalf("%v in\n%s", err, doc)
	}
	if o == nil {
		return
	}
	key := kind + "/" + o.GetName()
	if into[key] != nil {
		t.Errorf("%s is there twice", key)
	}
	into[key] = o
}

// decode reads one document into its type; an empty one is nil.
func decode(doc string) (o object, kind string, err error) {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(doc), &meta); err != nil || meta.Kind == "" {
		return nil, "", err
	}
	empty, known := kinds[meta.APIVersion+"/"+meta.Kind]
	if !known {
		return nil, "", fmt.Errorf("kind %s %s is not in the table of this test", meta.APIVersion, meta.Kind)
	}
	o = empty()
	return o, meta.Kind, yaml.UnmarshalStrict([]byte(doc), o)
}

// the returns the only object of a key.
func the[T object](t *testing.T, from map[string]object, key string) T {
	t.Helper()
	o, ok := from[key].(T)
	if !ok {
		t.Fatalf("no %s among %d objects", key, len(from))
	}
	return o
}

// agent returns the container of the DaemonSet.
func (r rendered) agent(t *testing.T) (*appsv1.DaemonSet, corev1.Container) {
	t.Helper()
	ds := the[*appsv1.DaemonSet](t, r.objects, "DaemonSet/namegate")
	diff.MustEqual(t, 1, len(ds.Spec.Template.Spec.Containers), "containers")
	return ds, ds.Spec.Template.Spec.Containers[0]
}

// appVersion is what Chart.yaml says of the image.
func appVersion(t *testing.T) string {
	t.Helper()
	chart, err := loader.Load(chartPath)
	fatal.If(t, err)
	return chart.Metadata.AppVersion
}
