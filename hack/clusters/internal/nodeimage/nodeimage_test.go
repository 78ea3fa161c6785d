// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/hack/clusters/image"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listed is what kubeadm v1.36 says that it needs.
func listed() []string {
	return []string{
		"registry.k8s.io/kube-apiserver:v1.36.3", "registry.k8s.io/kube-controller-manager:v1.36.3",
		"registry.k8s.io/kube-scheduler:v1.36.3", "registry.k8s.io/kube-proxy:v1.36.3",
		"registry.k8s.io/coredns/coredns:v1.14.2", "registry.k8s.io/pause:3.10.2", "registry.k8s.io/etcd:3.6.8-0",
	}
}

func testBuilder(t *testing.T) *builder {
	t.Helper()
	return &builder{required: listed(), programs: map[string]string{
		"kubeadm": "/cache/kube-1/kubeadm", "kubelet": "/cache/kube-1/kubelet", "kubectl": "/cache/kubectl-1/kubectl", "etcd": "/cache/etcd-1/etcd", "coredns": "/cache/coredns-1/coredns", "pause": "/cache/pause-1/pause",
	}}
}

func TestImagesAreAllThatKubeadmNeeds(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "proxy", "usr", "sbin"), 0o750); err != nil {
		t.Fatal(err)
	}
	specs, err := testBuilder(t).images(root)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for name, spec := range specs {
		got[name] = spec.Ref
		if err := spec.Validate(); err != nil {
			t.Error(err)
		}
	}
	want := map[string]string{"kube": listed()[0], "coredns": listed()[4], "pause": listed()[5], "etcd": listed()[6]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		link := image.File{Path: "/usr/local/bin/" + name, Link: "kube"}
		if !slices.Contains(specs["kube"].Files, link) {
			t.Errorf("the image of Kubernetes lacks %s", link.Path)
		}
	}
}

func TestAnImageThatNobodyMakesIsNamed(t *testing.T) {
	if err := known(listed()); err != nil {
		t.Error(err)
	}
	err := known(append(listed(), "registry.k8s.io/something-new:v1"))
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "something-new") {
		t.Errorf("error %v, want %v with its name", err, ErrUnknown)
	}
}

func TestTheKeyChangesWithEveryProgram(t *testing.T) {
	b := testBuilder(t)
	keys := map[string]string{b.key(): "nothing"}
	for _, name := range []string{"kubeadm", "kubectl", "etcd", "coredns", "pause"} {
		changed := testBuilder(t)
		changed.programs[name] = "/cache/" + name + "-2/" + name
		if same, known := keys[changed.key()]; known {
			t.Errorf("another %s has the key of another %s", name, same)
		}
		keys[changed.key()] = name
	}
}
