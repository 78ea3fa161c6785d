// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/yaml"

	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
)

var rewrite = flag.Bool("rewrite", false, "write the works into testdata")

// tailUser is the user of the API in the clusters.
const tailUser = "hub:system:serviceaccount:spokelet-workers:spokelet-workers-api"

const testImage = "registry.example/workers/1234@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// placement is a bundle of three scripts, with names that Kubernetes does not have.
func placement(change ...func(*Placement)) Placement {
	p := Placement{
		Account: "1234", HubNamespace: "team-a", Cluster: "spoke1", Host: "team-a.example",
		Bundle: &bundlev1alpha1.WorkerBundle{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "bundle-1234", UID: "uid", Generation: 3},
			Spec: bundlev1alpha1.WorkerBundleSpec{
				DeploymentName: "bundle-1234",
				Workers: []bundlev1alpha1.Worker{
					{WorkerName: "1234", WorkerNumber: 8080, EnvPrefix: "_1234_", Release: "numbers-1111111111"},
					{WorkerName: "hello", WorkerNumber: 8081, EnvPrefix: "HELLO_", Release: "hello-2222222222", SecretRef: "hello-2222222222"},
					{WorkerName: "wasm_worker", WorkerNumber: 8082, Release: "wasm-3333333333", SecretRef: "wasm-3333333333"},
				},
				PodTemplate: bundlev1alpha1.PodTemplate{Image: testImage},
			},
		},
		Secrets: map[string]map[string][]byte{
			"hello-2222222222": {"API_KEY": []byte("key of hello"), "OTHER": {}},
			"wasm-3333333333":  {"DATABASE_URL": []byte("postgres://user:password@db.example")},
		},
		PullSecret: []byte(`{"auths":{"registry.example":{"auth":"cHVsbDpwdWxs"}}}`),
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func withIngress(p *Placement) {
	p.Options.Route, p.Options.TailUser = RouteIngress, tailUser
	p.Options.Ingress = Ingress{Class: "nginx", Rewrite: RewriteNginx, Annotations: map[string]string{"nginx.ingress.kubernetes.io/proxy-body-size": "100m"}}
}

func withGateway(p *Placement) {
	p.Options.Route = RouteGateway
	p.Options.Gateway = Gateway{ParentRefs: []ParentRef{{Namespace: "gateways", Name: "public", SectionName: "https"}, {Name: "other", Group: "g.example", Kind: "Door", Port: 8443}}}
}

func mustWork(t *testing.T, p Placement) *workv1.ManifestWork {
	t.Helper()
	w, err := Work(p)
	if err != nil {
		t.Fatalf("no work: %v", err)
	}
	return w
}

// text of a work, as it is in testdata.
func text(t *testing.T, w *workv1.ManifestWork) string {
	t.Helper()
	out, err := yaml.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// objects of a work, in their order.
func objects(t *testing.T, w *workv1.ManifestWork) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	for _, m := range w.Spec.Workload.Manifests {
		var obj unstructured.Unstructured
		if err := json.Unmarshal(m.Raw, &obj.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, obj)
	}
	return all
}

// names of the objects of one kind, or of all for "".
func names(t *testing.T, w *workv1.ManifestWork, kind string) []string {
	t.Helper()
	all := []string{}
	for _, obj := range objects(t, w) {
		switch kind {
		case "":
			all = append(all, obj.GetKind()+" "+obj.GetName())
		case obj.GetKind():
			all = append(all, obj.GetName())
		}
	}
	return all
}

func object(t *testing.T, w *workv1.ManifestWork, kind string) unstructured.Unstructured {
	t.Helper()
	for _, obj := range objects(t, w) {
		if obj.GetKind() == kind {
			return obj
		}
	}
	t.Fatalf("work has no %s", kind)
	return unstructured.Unstructured{}
}

func TestWorksMatchGoldenFiles(t *testing.T) {
	tests := map[string]struct {
		reason string
		p      Placement
	}{
		"none":    {reason: "no route, a registry for everybody, and no host", p: placement(func(p *Placement) { p.Host, p.PullSecret = "", nil })},
		"ingress": {reason: "as the design document has it, and somebody reads logs", p: placement(withIngress)},
		"gateway": {reason: "a route for each script", p: placement(withGateway)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := text(t, mustWork(t, tc.p))
			path := filepath.Join("testdata", name+".yaml")
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s; -rewrite writes it (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWorkOfEmptyBundleIsNil(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(*Placement)
	}{
		"no bundle":  {reason: "it is not made yet", change: func(p *Placement) { p.Bundle = nil }},
		"no image":   {reason: "none is built yet", change: func(p *Placement) { p.Bundle.Spec.PodTemplate.Image = "" }},
		"no workers": {reason: "all were rejected, or deleted", change: func(p *Placement) { p.Bundle.Spec.Workers = nil }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := placement(tc.change)
			if w, err := Work(p); w != nil || err != nil {
				t.Errorf("work is %v, error %v: %s", w, err, tc.reason)
			}
			if r := Revision(p); r != "" {
				t.Errorf("revision is %q: %s", r, tc.reason)
			}
		})
	}
}

func TestWorkRejectsInvalidPlacements(t *testing.T) {
	worker := func(change func(*bundlev1alpha1.Worker)) func(*Placement) {
		return func(p *Placement) { change(&p.Bundle.Spec.Workers[2]) }
	}
	tests := map[string]struct {
		reason string
		change func(*Placement)
		want   string
	}{
		"no account":   {reason: "all names are made of it", change: func(p *Placement) { p.Account = "" }, want: "account: is empty"},
		"no cluster":   {reason: "the work is in its namespace", change: func(p *Placement) { p.Cluster = "" }, want: "cluster: is empty"},
		"no namespace": {reason: "the work's label is how it is found", change: func(p *Placement) { p.HubNamespace = "" }, want: "namespace on the hub: is empty"},
		"no name":      {reason: "nothing can be made", change: func(p *Placement) { p.Bundle.Spec.DeploymentName = "" }, want: "deploymentName: is empty"},
		"two names that are one for Kubernetes": {
			reason: "they would share a Service", change: func(p *Placement) {
				p.Bundle.Spec.Workers[1].WorkerName, p.Bundle.Spec.Workers[1].EnvPrefix = "a-b", ""
				p.Bundle.Spec.Workers[2].WorkerName = "a_b"
			}, want: "workers a-b and a_b: both have worker-a-b",
		},
		"one port for two": {
			reason: "one of them would be served as the other", change: worker(func(w *bundlev1alpha1.Worker) { w.WorkerNumber = 8080 }),
			want: "workers 1234 and wasm_worker: both have 8080",
		},
		"secrets that are not there": {
			reason: "pods would wait for them", change: worker(func(w *bundlev1alpha1.Worker) { w.Release = "other" }),
			want: "worker wasm_worker: the secrets of release other are missing",
		},
		"secrets without a release": {
			reason: "their name is that of the release", change: worker(func(w *bundlev1alpha1.Worker) { w.Release = "" }),
			want: "worker wasm_worker: has secrets and no release",
		},
		"a release with the name of the pull secret": {
			reason: "one would replace the other", change: func(p *Placement) {
				p.Bundle.Spec.Workers[2].Release = "bundle-1234-pull"
				p.Secrets["bundle-1234-pull"] = nil
			}, want: "worker wasm_worker: release bundle-1234-pull has the name of the pull secret",
		},
		"two prefixes that make one variable": {
			reason: "one script would read the other's secret", change: func(p *Placement) {
				p.Bundle.Spec.Workers[1].WorkerName, p.Bundle.Spec.Workers[1].EnvPrefix = "a", ""
				p.Bundle.Spec.Workers[2].WorkerName = "a-b"
				p.Secrets["hello-2222222222"] = map[string][]byte{"B_KEY": []byte("one")}
				p.Secrets["wasm-3333333333"] = map[string][]byte{"KEY": []byte("two")}
			}, want: "environment: workers a and a-b: both have A_B_KEY",
		},
		"a prefix that is not the script's": {
			reason: "with a key PRELOAD it would load a library", change: worker(func(w *bundlev1alpha1.Worker) { w.EnvPrefix = "LD_" }),
			want: "worker wasm_worker: envPrefix LD_ is not WASM_WORKER_",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := Work(placement(tc.change))
			if w != nil || err == nil {
				t.Fatalf("work is made: %s", tc.reason)
			}
			_, got, _ := strings.Cut(err.Error(), "work of bundle bundle-1234: ")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSizeErrorReportsBytes(t *testing.T) {
	p := placement(func(p *Placement) { p.Secrets["hello-2222222222"]["API_KEY"] = make([]byte, 1<<20) })
	_, err := Work(p)
	var size *SizeError
	if !errors.As(err, &size) {
		t.Fatalf("error is %v", err)
	}
	if size.Secrets < 1<<20 || size.Bytes <= size.Secrets || size.Limit != 512_000 {
		t.Errorf("sizes are %+v", size)
	}
	for _, number := range []int{size.Bytes, size.Secrets, size.Limit} {
		if !strings.Contains(err.Error(), strconv.Itoa(number)) {
			t.Errorf("%q does not say %d", err, number)
		}
	}
	p.Options.MaxBytes = size.Bytes
	if _, err := Work(p); err != nil {
		t.Errorf("a work of just the bound is refused: %v", err)
	}
	p.Options.MaxBytes--
	if _, err := Work(p); err == nil {
		t.Error("a work beyond the bound is made")
	}
}

func TestWorkerOrderDoesNotChangeWork(t *testing.T) {
	for _, route := range []func(*Placement){withIngress, withGateway} {
		p := placement(route)
		want, revision := text(t, mustWork(t, p)), Revision(p)
		for seed := range uint64(10) {
			r := rand.New(rand.NewPCG(seed, 0))
			ws := p.Bundle.Spec.Workers
			r.Shuffle(len(ws), func(i, j int) { ws[i], ws[j] = ws[j], ws[i] })
			if diff := cmp.Diff(want, text(t, mustWork(t, p))); diff != "" {
				t.Fatalf("order %d makes another work (-want +got):\n%s", seed, diff)
			}
			if got := Revision(p); got != revision {
				t.Fatalf("order %d makes another revision: %s, not %s", seed, got, revision)
			}
		}
	}
}

func TestWorkDoesNotModifyPlacement(t *testing.T) {
	p, want := placement(withIngress), placement(withIngress)
	w := mustWork(t, p)
	for i := range w.Spec.Workload.Manifests {
		clear(w.Spec.Workload.Manifests[i].Raw)
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// many are as many scripts as a bundle may have, with the longest names.
func many(p *Placement) {
	p.Bundle.Spec.Workers, p.Secrets = nil, map[string]map[string][]byte{}
	for i := range 100 {
		name := fmt.Sprintf("%03d%s_x", i, strings.Repeat("_-", 24))
		release := fmt.Sprintf("release-%d", i)
		p.Bundle.Spec.Workers = append(p.Bundle.Spec.Workers, bundlev1alpha1.Worker{
			WorkerName: name, WorkerNumber: int32(8080 + i), Release: release, SecretRef: release,
		})
		p.Secrets[release] = map[string][]byte{"KEY": []byte("value")}
	}
}

func TestHundredWorkersHaveValidNames(t *testing.T) {
	for _, route := range []func(*Placement){withIngress, withGateway} {
		w := mustWork(t, placement(many, route))
		seen := map[string]bool{}
		for _, obj := range objects(t, w) {
			key := obj.GetKind() + " " + obj.GetName()
			if seen[key] {
				t.Errorf("%s is there twice", key)
			}
			seen[key] = true
			if bad := validation.IsDNS1123Subdomain(obj.GetName()); len(bad) > 0 {
				t.Errorf("%s: %v", key, bad)
			}
			if obj.GetKind() == "Service" {
				if bad := validation.IsDNS1035Label(obj.GetName()); len(bad) > 0 {
					t.Errorf("%s: %v", key, bad)
				}
			}
			for name, value := range obj.GetLabels() {
				if bad := validation.IsValidLabelValue(value); len(bad) > 0 {
					t.Errorf("%s: label %s: %v", key, name, bad)
				}
			}
		}
		container := containerOf(t, w)
		for _, port := range container["ports"].([]any) {
			if bad := validation.IsValidPortName(port.(map[string]any)["name"].(string)); len(bad) > 0 {
				t.Errorf("%v: %v", port, bad)
			}
		}
		for _, from := range container["envFrom"].([]any) {
			if bad := validation.IsEnvVarName(from.(map[string]any)["prefix"].(string)); len(bad) > 0 {
				t.Errorf("%v: %v", from, bad)
			}
		}
	}
	if got := len(names(t, mustWork(t, placement(many, withGateway)), "HTTPRoute")); got != 100 {
		t.Errorf("%d routes, want 100: an HTTPRoute has at most 16 rules", got)
	}
}

func containerOf(t *testing.T, w *workv1.ManifestWork) map[string]any {
	t.Helper()
	d := object(t, w, "Deployment")
	containers, _, err := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("containers are %v: %v", containers, err)
	}
	return containers[0].(map[string]any)
}

func TestRevisionChangesWithContent(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(*Placement)
		same   bool
	}{
		"another image": {reason: "it is what runs", change: func(p *Placement) { p.Bundle.Spec.PodTemplate.Image += "0" }},
		"another release": {reason: "it may have other secrets", change: func(p *Placement) {
			p.Bundle.Spec.Workers[0].Release, p.Bundle.Spec.Workers[0].SecretRef = "hello-2222222222", "x"
		}},
		"another port":           {reason: "the Service leads elsewhere", change: func(p *Placement) { p.Bundle.Spec.Workers[0].WorkerNumber = 9000 }},
		"another host":           {reason: "it is reached elsewhere", change: func(p *Placement) { p.Host = "other.example" }},
		"another route":          {reason: "it is reached otherwise", change: withGateway},
		"more pods":              {reason: "an option is part of what is asked for", change: func(p *Placement) { p.Options.MaxReplicas = 50 }},
		"somebody who reads":     {reason: "he is part of what is asked for", change: func(p *Placement) { p.Options.TailUser = "" }},
		"a pull secret less":     {reason: "pods name it", change: func(p *Placement) { p.PullSecret = nil }},
		"another generation":     {reason: "what is asked for again is asked for anew", change: func(p *Placement) { p.Bundle.Generation++ }},
		"another bundle":         {reason: "generations begin again", change: func(p *Placement) { p.Bundle.UID = "other" }},
		"nothing":                {reason: "it is the same", change: func(*Placement) {}, same: true},
		"another cluster":        {reason: "all clusters are asked for the same", change: func(p *Placement) { p.Cluster = "spoke2" }, same: true},
		"a default that is said": {reason: "it is the same", change: func(p *Placement) { p.Options.MinReplicas = 1 }, same: true},
		"a prefix that is said":  {reason: "it is the same", change: func(p *Placement) { p.Bundle.Spec.Workers[2].EnvPrefix = "WASM_WORKER_" }, same: true},
		"secrets of no worker":   {reason: "nothing runs with them", change: func(p *Placement) { p.Secrets["old"] = nil }, same: true},
		"another status":         {reason: "it is an answer", change: func(p *Placement) { p.Bundle.Status.Workers = 7 }, same: true},
	}
	before := Revision(placement(withIngress))
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := placement(withIngress, tc.change)
			got := Revision(p)
			if (got == before) != tc.same {
				t.Errorf("revision is %s, was %s: %s", got, before, tc.reason)
			}
			d := object(t, mustWork(t, p), "Deployment")
			if diff := cmp.Diff(map[string]string{AnnotationRevision: got}, d.GetAnnotations()); diff != "" {
				t.Errorf("the Deployment says another one (-want +got):\n%s", diff)
			}
		})
	}
}
