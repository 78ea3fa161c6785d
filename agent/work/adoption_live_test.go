// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work/record"
)

// make creates a ConfigMap that no work knows of.
func (c *testCluster) make(name string, data map[string]string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	c.t.Helper()
	made, err := c.kube.CoreV1().ConfigMaps(c.namespace).Create(c.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}, Data: data,
	}, metav1.CreateOptions{FieldManager: "somebody"})
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

// free waits until an object is there and nobody owns it.
func (c *testCluster) free(name string, uid types.UID) {
	c.t.Helper()
	live, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil || live.UID != uid || len(live.OwnerReferences) != 0 {
		c.t.Errorf("%s = uid %q, owners %v, %v; want uid %q without owners", name, live.UID, live.OwnerReferences, err, uid)
	}
}

// adoptions renders which objects an anchor lists as found.
func (c *testCluster) adoptions(name string) string {
	var out []string
	for _, r := range c.appliedResources(name) {
		if r.Adopted {
			out = append(out, r.Name)
		}
	}
	return strings.Join(out, " ")
}

func TestDeletionKeepsObjectThatExistedBefore(t *testing.T) {
	for label, restart := range map[string]bool{"one agent": false, "another agent after the record": true} {
		t.Run(label, func(t *testing.T) {
			c, h := newCluster(t), newHub(t)
			pruned, kept := c.make("pruned", map[string]string{"theirs": "x"}), c.make("kept", nil)
			a := c.start(h)
			name := c.name("adopt")
			h.want(name, 1, c.configMap("pruned", "k", "1"), c.configMap("kept", "k", "1"), c.configMap("made", "k", "1"))
			h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
			c.eventually("what was found is recorded", func() bool { return c.adoptions(name) == "kept pruned" })
			if restart {
				a.stop()
				c.start(h)
			}
			h.want(name, 2, c.configMap("kept", "k", "2"), c.configMap("made", "k", "2"))
			h.is(c, name, 2, conditionApplied, metav1.ConditionTrue)
			c.eventually("pruned from the list", func() bool { return listed(c, name) == "kept:true made:true" })
			c.free("pruned", pruned.UID)
			h.want(name, 2)
			h.finalized(c, name)
			c.free("kept", kept.UID)
			want := map[string]map[string]string{"pruned": {"k": "1", "theirs": "x"}, "kept": {"k": "2"}}
			if diff := cmp.Diff(want, c.configMaps()); diff != "" {
				t.Errorf("left behind (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeletionKeepsNamespaceThatExistedBefore(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.start(h)
	name := c.name("namespace")
	h.want(name, 1, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+c.namespace+`"}}`)
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	h.want(name, 1)
	h.finalized(c, name)
	ns, err := c.kube.CoreV1().Namespaces().Get(t.Context(), c.namespace, metav1.GetOptions{})
	if err != nil || ns.DeletionTimestamp != nil || len(ns.OwnerReferences) != 0 {
		t.Errorf("namespace = %+v, %v", ns.ObjectMeta, err)
	}
}

func TestDeletionRemovesRecreatedObject(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.make("a", map[string]string{"theirs": "x"})
	c.start(h)
	name := c.name("again")
	h.want(name, 1, c.configMap("a", "k", "1"))
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the object is back", func() bool {
		return cmp.Equal(map[string]map[string]string{"a": {"k": "1"}}, c.configMaps())
	})
	h.want(name, 1)
	h.finalized(c, name)
	if left := c.configMaps(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDeletionKeepsObjectOfAnotherOwner(t *testing.T) {
	for label, tc := range map[string]struct {
		reason string
		lives  bool
	}{
		"an owner that lives":   {reason: "it is that owner's business when the object goes", lives: true},
		"an owner that is gone": {reason: "without a garbage collector nobody drops the reference"},
	} {
		t.Run(label, func(t *testing.T) {
			c, h := newCluster(t), newHub(t)
			owner := c.make("owner", nil)
			ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}
			a := c.start(h)
			name := c.name("owned")
			h.want(name, 1, c.configMap("a", "k", "1"))
			h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
			c.recorded(name) // else the next process does not know who made it
			a.stop()         // so that nothing can collect the object before its work is deleted
			live, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(t.Context(), "a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			live.OwnerReferences = append(live.OwnerReferences, ref)
			if _, err := c.kube.CoreV1().ConfigMaps(c.namespace).Update(t.Context(), live, metav1.UpdateOptions{FieldManager: "somebody"}); err != nil {
				t.Fatal(err)
			}
			if !tc.lives {
				if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			c.start(h)
			h.want(name, 1)
			h.finalized(c, name)
			now, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(t.Context(), "a", metav1.GetOptions{})
			switch {
			case tc.lives && (err != nil || !cmp.Equal([]metav1.OwnerReference{ref}, now.OwnerReferences)):
				t.Errorf("object has owners %v, %v: %s", now.OwnerReferences, err, tc.reason)
			case !tc.lives && err == nil:
				t.Errorf("object is left behind: %s", tc.reason)
			}
		})
	}
}

// TestLostResponseDoesNotProveCreation cuts the connection after an apply
// was done: the next one finds an object, as if it had been there.
func TestLostResponseDoesNotProveCreation(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	before := c.make("before", map[string]string{"k": "0"})
	lost := &responseLoss{paths: map[string]bool{}}
	c.start(h, func(cfg *Config) { cfg.REST.WrapTransport = lost.wrapAfter(cfg.REST.WrapTransport) })
	name := c.name("lost")
	h.want(name, 1, c.configMap("before", "k", "1"), c.configMap("made", "k", "1"))
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	if len(lost.paths) != 2 {
		t.Fatalf("answers were lost of %v", lost.paths)
	}
	h.want(name, 1)
	h.finalized(c, name)
	c.free("before", before.UID)
	if diff := cmp.Diff(map[string]map[string]string{"before": {"k": "1"}}, c.configMaps()); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
}

// responseLoss has the answer to the first write of each ConfigMap lost.
type responseLoss struct{ paths map[string]bool }

func (l *responseLoss) wrapAfter(before func(http.RoundTripper) http.RoundTripper) func(http.RoundTripper) http.RoundTripper {
	return answering(before, func(req *http.Request, resp *http.Response) (*http.Response, error) {
		// One work has one executor: no two of its applies run at once.
		if req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/configmaps/") && !l.paths[req.URL.Path] {
			l.paths[req.URL.Path] = true
			_ = resp.Body.Close()
			return nil, errBoom
		}
		return resp, nil
	})
}

// answering has answer look at every answer, behind what wrapped the transport before.
func answering(
	before func(http.RoundTripper) http.RoundTripper, answer func(*http.Request, *http.Response) (*http.Response, error),
) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		if before != nil {
			next = before(next)
		}
		return roundTripper{next, func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil {
				return resp, err
			}
			return answer(req, resp)
		}}
	}
}

func TestEngineIgnoresAnchorOfAnotherHub(t *testing.T) {
	c, theirs, ours := newCluster(t), newHub(t), newHub(t)
	c.start(theirs)
	name := c.name("twice")
	theirs.want(name, 1, c.configMap("theirs", "k", "1"))
	theirs.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	before, _ := c.anchor(name)
	c.start(ours, func(cfg *Config) { cfg.HubID = "other-" + c.namespace })
	ours.want(name, 1, c.configMap("ours", "k", "1"))
	s := ours.is(c, name, 1, conditionApplied, metav1.ConditionFalse)
	if got := message(s, 0); !strings.Contains(got, record.ErrForeign.Error()) {
		t.Errorf("message = %q", got)
	}
	ours.want(name, 1)
	ours.finalized(c, name)
	after, _ := c.anchor(name)
	if diff := cmp.Diff(before.GetLabels(), after.GetLabels()); diff != "" || before.GetUID() != after.GetUID() {
		t.Errorf("the anchor is another's (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]map[string]string{"theirs": {"k": "1"}}, c.configMaps()); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	// The name is free as soon as the other hub lets go of it.
	ours.want(name, 2, c.configMap("ours", "k", "2"))
	ours.is(c, name, 2, conditionApplied, metav1.ConditionFalse)
	theirs.want(name, 1)
	theirs.finalized(c, name)
	ours.is(c, name, 2, conditionApplied, metav1.ConditionTrue)
}
