// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/spokelet/spokelet/hack/clusters/internal/process"
)

func TestAStateIsFoundAgainByItsName(t *testing.T) {
	root := t.TempDir()
	want := state{Name: "one", Provider: Netns, Clusters: clusterNames(2), Slot: 3}
	other := state{Name: "two", Provider: ControlPlane, Clusters: clusterNames(1), Complete: true}
	for _, s := range []state{other, want} {
		if err := s.save(root); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "one.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "foreign"), 0o750); err != nil {
		t.Fatal(err)
	}
	got, err := load(root, "one")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	all, err := list(root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]state{want, other}, all); diff != "" {
		t.Errorf("all states (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{3}, slots(all, "two")); diff != "" {
		t.Errorf("slots in use (-want +got):\n%s", diff)
	}
	if got := slots(all, "one"); len(got) != 0 {
		t.Errorf("slots in use by others: %v", got)
	}
}

func TestOpenTellsWhyThereIsNothingToOpen(t *testing.T) {
	cases := map[string]struct {
		reason string
		state  string
		want   error
	}{
		"no set": {
			reason: "it was never made",
			want:   ErrNotFound,
		},
		"a half-made set": {
			reason: "its Up was killed",
			state:  `{"Name":"x","Provider":"controlplane","Clusters":["hub"]}`,
			want:   ErrIncomplete,
		},
		"a set of an unknown provider": {
			reason: "a later version made it",
			state:  `{"Name":"x","Provider":"later","Clusters":["hub"],"Complete":true}`,
			want:   ErrConfig,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if tc.state != "" {
				writeState(t, root, tc.state)
			}
			if _, err := Open(t.Context(), Config{Name: "x", StateDir: root}); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func writeState(t *testing.T, root, content string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(root, "x"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "x", stateFile), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDownRemovesAHalfMadeSetAndItsProcesses(t *testing.T) {
	root := filepath.Join(t.TempDir(), "state")
	half := state{Name: "x", Provider: ControlPlane, Clusters: clusterNames(1)}
	if err := half.save(root); err != nil {
		t.Fatal(err)
	}
	dir := half.dir(root)
	// Never recorded, as if Up had been killed between the start and the record.
	orphan, err := process.Start(process.Spec{
		Name: "orphan", Path: "/bin/sleep", Args: []string{"3600"}, Mark: dir, Log: filepath.Join(dir, "log"),
	}, filepath.Join(t.TempDir(), "elsewhere.json"))
	if err != nil {
		t.Skipf("needs /bin/sleep: %v", err)
	}
	if err := Down(t.Context(), Config{Name: "x", StateDir: root}); err != nil {
		t.Fatal(err)
	}
	if orphan.Alive() {
		t.Error("a process of the set is still there")
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the last set left its state directory: %v", err)
	}
	if err := Down(t.Context(), Config{Name: "x", StateDir: root}); err != nil {
		t.Errorf("a set that is down already: %v", err)
	}
}

func TestSetsGoDownAtTheSameTime(t *testing.T) {
	root := filepath.Join(t.TempDir(), "state")
	for range 200 {
		var group errgroup.Group
		for _, name := range []string{"a", "b", "c"} {
			group.Go(func() error { return Down(t.Context(), Config{Name: name, StateDir: root}) })
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the last set left its state directory: %v", err)
		}
	}
}

func TestOnlyWhatTheProviderNeedsIsBuiltAhead(t *testing.T) {
	cases := map[string]struct {
		reason        string
		provider      Provider
		own           bool
		with, without []string
	}{
		"network namespaces": {
			reason: "they run all of Kubernetes, and no containers of kind", provider: Netns,
			with: []string{"kube-apiserver", "etcd", "pause"}, without: []string{"kind", "coredns", "oci-runtime"},
		},
		"kind on the machine's engine": {
			reason: "its node image has Kubernetes in it", provider: Kind,
			with: []string{"kind"}, without: []string{"kube-apiserver", "kubelet", "etcd", "coredns", "oci-runtime"},
		},
		"kind on an engine of its own": {
			reason: "its node image is made of them", provider: Kind, own: true,
			with: []string{"kind", "kubeadm", "kubelet", "etcd", "coredns", "pause", "oci-runtime"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := programs(tc.provider, tc.own)
			for _, program := range append(tc.with, "kubectl", "kubectl129", "helm", "metrics-server") {
				if !slices.Contains(got, program) {
					t.Errorf("%s: no %s in %v", tc.reason, program, got)
				}
			}
			for _, program := range tc.without {
				if slices.Contains(got, program) {
					t.Errorf("%s: %s is built", tc.reason, program)
				}
			}
		})
	}
}

func TestExistingClustersAreUsedAndLeftAlone(t *testing.T) {
	config := Config{Provider: Existing, HubKubeconfig: "/hub", SpokeKubeconfigs: []string{"/a", "/b"}, StateDir: t.TempDir()}
	set, err := Up(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if set.Hub().Kubeconfig != "/hub" || len(set.Spokes()) != 2 || set.Spokes()[1].Kubeconfig != "/b" {
		t.Errorf("hub %+v, spokes %+v", set.Hub(), set.Spokes())
	}
	if err := set.Cut(t.Context(), set.Spokes()[0], Drop); !errors.Is(err, ErrUnsupported) {
		t.Errorf("cut: %v, want %v", err, ErrUnsupported)
	}
	if err := set.Hub().LoadImage(t.Context(), "/image.tar"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("load: %v, want %v", err, ErrUnsupported)
	}
	if _, err := set.Cluster("spoke3"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a cluster that is not there: %v, want %v", err, ErrNotFound)
	}
	if err := set.Down(t.Context()); err != nil {
		t.Errorf("down: %v", err)
	}
}

func TestStraysAreFoundByTheSetsOwnPods(t *testing.T) {
	set := &Set{config: Config{StateDir: t.TempDir()}, state: state{Name: "x", Clusters: clusterNames(1)}}
	driver := newNetns(set, nil)
	// A sandbox whose id no cached network bears, as after an orderly removal.
	if err := os.MkdirAll(filepath.Join(driver.dir(), "hub", "containerd", "cri", "sandboxes", "none"), 0o750); err != nil {
		t.Fatal(err)
	}
	if got := driver.strays(); len(got) != 0 {
		t.Errorf("other sets' files are taken for this one's: %v", got)
	}
}
