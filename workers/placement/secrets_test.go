// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	workv1 "open-cluster-management.io/api/work/v1"
)

func TestSecretValuesAreOnlyInSecrets(t *testing.T) {
	values := func(p *Placement) {
		p.Secrets["hello-2222222222"]["API_KEY"] = []byte("another value")
		p.PullSecret = []byte(`{"auths":{}}`)
	}
	a, b := placement(withIngress), placement(withIngress, values)
	if Revision(a) != Revision(b) {
		t.Error("the revision tells something about values")
	}
	without := func(p Placement) []unstructured.Unstructured {
		all := objects(t, mustWork(t, p))
		for i := range all {
			if all[i].GetKind() == "Secret" {
				delete(all[i].Object, "data")
			}
		}
		return all
	}
	if diff := cmp.Diff(without(a), without(b)); diff != "" {
		t.Errorf("what is no value differs (-one +other):\n%s", diff)
	}
}

func TestOldSecretsStayUntilRevisionIsServed(t *testing.T) {
	before := placement()
	after := placement(func(p *Placement) {
		p.Bundle.Generation++
		p.Bundle.Spec.Workers[1].Release = "hello-4444444444"
		p.Secrets = map[string]map[string][]byte{"hello-4444444444": {"API_KEY": []byte("new")}, "wasm-3333333333": before.Secrets["wasm-3333333333"]}
	})
	now := []string{"bundle-1234-pull", "hello-4444444444", "wasm-3333333333"}
	both := append(append([]string{}, now...), "hello-2222222222")
	tests := map[string]struct {
		reason string
		before func(t *testing.T) *workv1.ManifestWork
		room   bool
		want   []string
	}{
		"no work before": {reason: "nothing runs yet", before: func(*testing.T) *workv1.ManifestWork { return nil }, room: true, want: now},
		"the old revision is served": {
			reason: "its pods may restart", before: func(t *testing.T) *workv1.ManifestWork { return served(mustWork(t, before), Revision(before)) }, room: true, want: both,
		},
		"nobody knows what is served": {
			reason: "it may be the old revision", before: func(t *testing.T) *workv1.ManifestWork { return mustWork(t, before) }, room: true, want: both,
		},
		"the new revision is served": {
			reason: "no old pod is left", before: func(t *testing.T) *workv1.ManifestWork { return served(mustWork(t, before), Revision(after)) }, room: true, want: now,
		},
		"there is no room": {
			reason: "what is asked for comes first", before: func(t *testing.T) *workv1.ManifestWork { return mustWork(t, before) }, want: now,
		},
		"a work with what is not ours": {
			reason: "nothing is taken over unseen", before: func(t *testing.T) *workv1.ManifestWork {
				w := mustWork(t, before)
				raw := w.Spec.Workload.Manifests
				for i := range raw {
					raw[i].Raw = []byte(strings.ReplaceAll(string(raw[i].Raw), `"namespace":"workers-1234"`, `"namespace":"kube-system"`))
				}
				raw[0].Raw = []byte("{")
				return w
			}, room: true, want: now,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := after
			p.Before = tc.before(t)
			if !tc.room {
				for _, m := range mustWork(t, after).Spec.Workload.Manifests {
					p.Options.MaxBytes += len(m.Raw)
				}
			}
			if diff := cmp.Diff(tc.want, names(t, mustWork(t, p), "Secret")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if Revision(p) != Revision(after) {
				t.Errorf("secrets that stay are another revision: %s", tc.reason)
			}
		})
	}
}

func TestRetainedSecretsAreUnique(t *testing.T) {
	p := placement()
	for i := range 3 {
		p.Before = mustWork(t, p)
		p.Bundle.Generation++
		release := fmt.Sprintf("hello-%d", i)
		p.Bundle.Spec.Workers[1].Release = release
		p.Secrets = maps.Clone(p.Secrets)
		p.Secrets[release] = map[string][]byte{"API_KEY": []byte(release)}
	}
	want := []string{"bundle-1234-pull", "hello-0", "hello-1", "hello-2", "hello-2222222222", "wasm-3333333333"}
	got := names(t, mustWork(t, p), "Secret")
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
