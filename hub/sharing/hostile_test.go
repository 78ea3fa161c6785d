// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const good = `{"part":"Object","content":{"spec":{"size":2}}}`

// newHostileRig shares widgets with c1 by "s", from the hub alone by "down" in another
// namespace and those with a label by "some", and with c2 by "theirs".
func newHostileRig(t *testing.T) (*rig, *agent) {
	t.Helper()
	in := func(name string, change func(*v1alpha1.SharedResourceSpec)) *v1alpha1.SharedResource {
		return sharedResource(name, func(s *v1alpha1.SharedResource) { change(&s.Spec) })
	}
	r := newRig(t, sharedResource("s"),
		in("down", func(s *v1alpha1.SharedResourceSpec) {
			s.Direction, s.HubNamespace, s.SpokeNamespace = v1alpha1.DirectionToCluster, "all", "all"
		}),
		in("some", func(s *v1alpha1.SharedResourceSpec) {
			s.HubNamespace, s.SpokeNamespace = "$(cluster)-some", "some"
			s.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"share": "yes"}}
		}),
		in("theirs", func(s *v1alpha1.SharedResourceSpec) { s.ClusterSelector.MatchLabels["name"] = "c2" }),
		namespaceNamed("all"), namespaceNamed("c1-some"),
	)
	r.api.set(widgets, widget("c1", "a", 1))
	r.api.set(widgets, widget("c2", "a", 1))
	r.api.set(widgets, widget("all", "a", 1))
	r.api.set(widgets, widget("c1-some", "a", 1))
	r.start(t)
	return r, r.connect(t, "c1")
}

func TestWriteChoosesOnlyNameAndContent(t *testing.T) {
	seen := versionOf(t, `{"spec":{"size":1}}`)
	from := func(content string) string {
		return fmt.Sprintf(`{"part":"Object","seen":%q,"content":%s}`, seen, content)
	}
	tests := map[string]struct {
		reason, key, body string
		answered          bool
	}{
		"a share of another cluster":    {reason: "a spoke is not trusted with others", key: "theirs/b", body: good},
		"a share that is none":          {reason: "nobody asked for it", key: "none/b", body: good},
		"a fence":                       {reason: "it is no object", key: "s/#1", body: good},
		"a name with a slash":           {reason: "it would be another path", key: "s/../../c2/b", body: good},
		"a name that is none":           {reason: "the API server takes no such", key: "s/B", body: good},
		"no name":                       {reason: "it would be the collection", key: "s/", body: good},
		"no key":                        {reason: "garbage is dropped", key: "s", body: good},
		"what goes to clusters alone":   {reason: "the hub's changes travel", key: "down/a", body: from(`{"spec":{"size":2}}`), answered: true},
		"what is not selected":          {reason: "the selector says what is shared", key: "some/b", body: good, answered: true},
		"what exists and is not":        {reason: "it is not shared", key: "some/a", body: `{"part":"Object","content":{"metadata":{"labels":{"share":"yes"}}}}`, answered: true},
		"finalizers":                    {reason: "they would hold up deletions", key: "s/a", body: from(`{"metadata":{"finalizers":["a/b"]}}`), answered: true},
		"owners":                        {reason: "they would have it deleted", key: "s/a", body: from(`{"metadata":{"ownerReferences":[]}}`), answered: true},
		"another name":                  {reason: "the key has the name", key: "s/b", body: `{"part":"Object","content":{"metadata":{"name":"c"}}}`, answered: true},
		"another namespace":             {reason: "the share has the namespace", key: "s/b", body: `{"part":"Object","content":{"metadata":{"namespace":"c2"}}}`, answered: true},
		"another kind":                  {reason: "the share has the kind", key: "s/b", body: `{"part":"Object","content":{"kind":"Secret"}}`, answered: true},
		"labels that are no strings":    {reason: "a content is valid", key: "s/b", body: `{"part":"Object","content":{"metadata":{"labels":{"a":1}}}}`, answered: true},
		"content that is null":          {reason: "a content is an object", key: "s/b", body: `{"part":"Object","content":null}`, answered: true},
		"another part":                  {reason: "there are three", key: "s/b", body: `{"part":"Scale","content":{}}`, answered: true},
		"the status of what is not":     {reason: "it is created first", key: "s/b", body: `{"part":"Status","content":{}}`, answered: true},
		"the deletion of what is not":   {reason: "it is not there", key: "s/b", body: `{"part":"Deletion"}`, answered: true},
		"what nobody can read":          {reason: "garbage is refused", key: "s/b", body: `[`, answered: true},
		"a deletion of another version": {reason: "nothing is deleted unseen", key: "s/a", body: `{"part":"Deletion","seen":"1"}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a := newHostileRig(t)
				a.put(a.writes, resource.Resource{Key: tc.key, Generation: 7, Body: []byte(tc.body)})
				r.settle()
				o, _ := a.getObject(tc.key)
				if got := o.Refused == 7; got != tc.answered || o.Applied != 0 {
					t.Errorf("%s: %+v", tc.reason, o)
				}
				if got := r.api.writes(); len(got) > 0 {
					t.Errorf("%s: %v", tc.reason, got)
				}
				if _, ok := r.told(t, "c2", "theirs"); !ok {
					t.Errorf("%s: the other cluster lost its share", tc.reason)
				}
			})
		})
	}
}

// told is what is published of a share to a cluster.
func (r *rig) told(t *testing.T, cluster, name string) (wire.Share, bool) {
	t.Helper()
	one, ok := r.loadShare(cluster, name)
	if !ok {
		return wire.Share{}, false
	}
	s, err := wire.DecodeShare(one.Body)
	if err != nil {
		t.Fatal(err)
	}
	return s, true
}

func TestCreationUsesNamespaceOfShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newHostileRig(t)
		a.put(a.writes, resource.Resource{Key: "s/b", UID: "mine", Generation: 7, Body: []byte(good)})
		r.settle()
		b := r.api.get(widgets, "c1", "b")
		if b == nil || b.GetUID() == "mine" || b.GetKind() != "Widget" || b.GetAPIVersion() != "example.com/v1" {
			t.Fatalf("made %v", b)
		}
	})
}

func TestPendingWritesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newHostileRig(t)
		lines := 0
		r.cfg.Logger = funcr.New(func(_, _ string) { lines++ }, funcr.Options{})
		r.api.mu.Lock()
		r.api.refuse = func(request string) error {
			if strings.HasPrefix(request, "create") {
				return apierrors.NewForbidden(schema.ParseGroupResource(widgets), "b", nil)
			}
			return nil
		}
		r.api.mu.Unlock()
		const many = 3 * maxNewObjects
		for i := range many {
			a.put(a.writes, resource.Resource{Key: fmt.Sprintf("s/w%d", i), Generation: 7, Body: []byte(good)})
		}
		r.settle()
		r.mu.Lock()
		held, most := len(r.shares[shareKey{cluster: "c1", name: "s"}].requests), maxNewObjects+4
		r.mu.Unlock()
		if held > most || held < maxNewObjects {
			t.Errorf("%d writes are held, want at most %d", held, most)
		}
		if lines == 0 || lines > 20 {
			t.Errorf("%d lines of %d mistakes", lines, many)
		}
		for i := range many {
			a.writes.Delete(fmt.Sprintf("s/w%d", i))
		}
		r.settle()
		r.mu.Lock()
		defer r.mu.Unlock()
		if s := r.shares[shareKey{cluster: "c1", name: "s"}]; len(s.requests) > 0 || len(s.entries) != 1 {
			t.Errorf("%d records and %d entries are left", len(s.requests), len(s.entries))
		}
	})
}

func TestWritesAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s"))
		r.api.set(widgets, widget("c1", "a", 1))
		r.start(t)
		r.cfg.Writes = quota.NewWrites(quota.Rate{PerSecond: 10 << 10, Burst: 100 << 10}, quota.Rate{PerSecond: 1 << 30, Burst: 1 << 30})
		a := r.connect(t, "c1")
		began := time.Now()
		for i := int64(0); time.Since(began) < time.Minute; i++ {
			a.requestWrite("s/a", wire.PartObject, fmt.Sprintf(`{"spec":{"size":%d}}`, i))
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		// A request counts for a kilobyte at least.
		if n := len(r.api.writes()); n < 100 || n > 100+10*62 {
			t.Errorf("%d requests in a minute", n)
		}
	})
}

func TestAnsweredWriteIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newHostileRig(t)
		a.put(a.writes, resource.Resource{Key: "s/b", Generation: 7, Body: []byte(good)})
		r.settle()
		r.api.remove(widgets, "c1", "b")
		r.settle()
		a.put(a.writes, resource.Resource{Key: "s/b", Generation: 6, Body: []byte(good)})
		r.settle()
		if got := r.api.writes(); len(got) != 1 {
			t.Errorf("requests %v", got)
		}
	})
}

func TestTooLargeObjectIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		r.api.set(widgets, widget("c1", "big", 1, func(w *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(w.Object, strings.Repeat("x", wire.MaxSharedContent), "spec", "text")
		}))
		r.settle()
		if _, ok := a.getObject("s/big"); ok {
			t.Error("it is told")
		}
		s := stored(t, r, sharedResource("s"))
		if got := s.Status.Clusters[0].LastError; !strings.HasPrefix(got, `hub: object "big" is too large to be shared: `) {
			t.Errorf("lastError %q", got)
		}
		generation := a.requestWrite("s/big", wire.PartObject, `{"spec":{"size":2}}`)
		r.settle()
		if o, _ := a.getObject("s/big"); o.Refused != generation {
			t.Errorf("a write of it: %+v", o)
		}
		r.api.edit(t, widgets, "c1", "big", func(w *unstructured.Unstructured) { unstructured.RemoveNestedField(w.Object, "spec", "text") })
		r.settle()
		if o, ok := a.getObject("s/big"); !ok || o.Version == "" {
			t.Errorf("known %+v", o)
		}
		if s = stored(t, r, sharedResource("s")); s.Status.Clusters[0].LastError != "" {
			t.Errorf("lastError %q", s.Status.Clusters[0].LastError)
		}
	})
}
