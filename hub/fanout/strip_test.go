// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/cached"
	"github.com/spokelet/spokelet/hub/mcm"
)

// bulky is a template that the cache does not keep, with a number in it.
func bulky(n int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","data":{"a":%q,"n":"%d"},"kind":"ConfigMap","metadata":{"name":"a"}}`, strings.Repeat("x", 64<<10), n)
}

func TestStrippedTemplateIsCopiedToWorks(t *testing.T) {
	fanned(t, func(s *v1alpha1.WorkSet) { s.Spec.Template.Spec.KubeWork.ObjectTemplate.Raw = bulky(1) }, func(t *testing.T, r *rig, p parent) {
		r.settle(kindWorkSet)
		if got := r.work(p, "store-1").Spec.KubeWork.ObjectTemplate.Raw; !bytes.Equal(got, bulky(1)) {
			t.Fatalf("the work has %.200s", got)
		}
		before := r.writes.Load()
		r.restart()
		r.settle(kindWorkSet)
		if n := r.writes.Load() - before; n > 0 {
			t.Errorf("%d writes, and nothing has changed", n)
		}
		s := newSet()
		r.edit(s, func() { s.Spec.Template.Spec.KubeWork.ObjectTemplate.Raw, s.Generation = bulky(2), 2 })
		r.settle(kindWorkSet)
		if got := r.work(p, "store-2").Spec.KubeWork.ObjectTemplate.Raw; !bytes.Equal(got, bulky(2)) {
			t.Errorf("after a change the work has %.200s", got)
		}
	})
}

func TestTemplateOfOtherVersionIsNotWritten(t *testing.T) {
	r := newRig(t, newSet())
	k, s := r.kind(kindWorkSet), newSet()
	s.Generation = 2
	if _, err := k.getWithTemplate(t.Context(), newWorkSetParent(s)); err == nil {
		t.Error("the cache has generation 2, the API server 1, and that is taken")
	}
	if p, err := k.getWithTemplate(t.Context(), newWorkSetParent(newSet())); err != nil || p.isStripped() {
		t.Errorf("it is as the API server has it: %t, %v", p.isStripped(), err)
	}
}

func TestOversizedSpecIsReported(t *testing.T) {
	fanned(t, func(s *v1alpha1.WorkSet) {
		s.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"fan": strings.Repeat("x", cached.MaxKept)}}
	}, func(t *testing.T, r *rig, _ parent) {
		r.settle(kindWorkSet)
		if got := r.set(); got.Status != v1alpha1.WorkFailed || !strings.Contains(got.Reason, "of more than 8192 bytes beside its template") {
			t.Errorf("status is %+v", got)
		}
	})
}

func TestStripKeepsTemplateComparable(t *testing.T) {
	s := newSet()
	s.Spec.Template.Spec.KubeWork.ObjectTemplate.Raw = bulky(1)
	w := newWork(newWorkSetParent(s.DeepCopy()), alice, registered, "store-1")
	// An API server may write it otherwise.
	w.Spec.KubeWork = w.Spec.KubeWork.DeepCopy()
	w.Spec.KubeWork.ObjectTemplate.Raw = []byte(strings.Replace(string(bulky(1)), `"kind":"ConfigMap",`, "", 1))
	w.Spec.KubeWork.ObjectTemplate.Raw = []byte(strings.Replace(string(w.Spec.KubeWork.ObjectTemplate.Raw), `{`, `{"kind":"ConfigMap", `, 1))
	if _, err := Strip(s); err != nil {
		t.Fatal(err)
	}
	if _, err := mcm.Strip(w); err != nil {
		t.Fatal(err)
	}
	if patch, err := diffPatch(w, newWork(newWorkSetParent(s), alice, registered, "store-1")); patch != nil || err != nil {
		t.Errorf("they differ by %s, %v", patch, err)
	}
}
