// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/conditionrules"
	"github.com/spokelet/spokelet/agent/work/feedback"
	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// share is how many times the input an agent may take, besides allowance: what
	// an engine and its clients need for anything at all.
	share     = 3
	allowance = 16 << 20
	// mostFeedback is half of what etcd takes by default: the work's spec, and
	// everything else in its status, has to fit as well.
	mostFeedback = 768 << 10
)

// manifestOfText is a manifest as a hub has it.
func manifestOfText(text string) workv1.Manifest {
	return workv1.Manifest{RawExtension: apiruntime.RawExtension{Raw: []byte(text)}}
}

// statusRecorder takes statuses and keeps none: what is measured is the engine's.
type statusRecorder struct {
	told    atomic.Int64
	applied atomic.Pointer[metav1.Condition]
}

func (l *statusRecorder) Put(r resource.Resource) error {
	if len(r.Body) > resource.MaxBody {
		return resource.ErrTooLarge
	}
	var s wire.WorkStatus
	if err := json.Unmarshal(r.Body, &s); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	l.applied.Store(meta.FindStatusCondition(s.Conditions, conditionApplied))
	l.told.Add(1)
	return nil
}

func (*statusRecorder) Delete(string) {}
func (*statusRecorder) Complete()     {}

// peak watches what is alive in the heap until it is asked, and returns by how
// much that grew at most.
func peak() (grown func() int64) {
	before := heap()
	done := make(chan struct{})
	var most int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			most = max(most, heap())
			select {
			case <-done:
				return
			default:
			}
		}
	})
	return sync.OnceValue(func() int64 {
		close(done)
		wg.Wait()
		return most - before
	})
}

// filled is the body of a work with as many manifests as travel.
func filled(t *testing.T, manifest func(i int) string) (body []byte, count int) {
	t.Helper()
	w := wire.Work{Generation: 1, HubHash: hubHashOne}
	head, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(head), `"workload":{}`)
	if !found {
		t.Fatalf("no workload in %s", head)
	}
	before, after = before+`"workload":{"manifests":[`, `]}`+after
	var list strings.Builder
	for {
		next := manifest(count)
		if len(before)+list.Len()+len(next)+len(after)+1 > resource.MaxBody {
			return []byte(before + list.String() + after), count
		}
		if count > 0 {
			_ = list.WriteByte(',')
		}
		_, _ = list.WriteString(next)
		count++
	}
}

// A hub's etcd takes a work of 1.5 MiB; the wire takes more, so that is what is fed.
// That is nearly 100 000 of the smallest manifests that name an object.
func TestLargestWorkTakesLittleMemory(t *testing.T) {
	for label, tc := range map[string]struct {
		reason   string
		manifest func(c *testCluster, i int) string
	}{
		"of objects": {reason: "all could be made", manifest: func(c *testCluster, i int) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m-%d","namespace":%q}}`, i, c.namespace)
		}},
		"of one object": {reason: "all but one are duplicates", manifest: func(c *testCluster, _ int) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":%q}}`, c.namespace)
		}},
		"of unknown kinds": {reason: "none can be made", manifest: func(_ *testCluster, i int) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"Nonsense","metadata":{"name":"m-%d","namespace":"n"}}`, i)
		}},
	} {
		t.Run(label, func(t *testing.T) {
			c := newCluster(t)
			f, l := c.front(), &statusRecorder{}
			// How they fare is not what is measured; to make them takes minutes.
			f.answer(func(w http.ResponseWriter, r *http.Request) bool {
				return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configmaps") &&
					with(http.StatusInternalServerError, "text/plain", "boom")(w, r)
			})
			a := c.startForOCM(nil, f.through, func(cfg *Config) { cfg.Reporter = l })
			body, count := filled(t, func(i int) string { return tc.manifest(c, i) })
			began, before, grown := time.Now(), heap(), peak()
			a.Receiver().Put(resource.Resource{Key: manifestKey(c.name("w")), UID: "uid", Generation: 1, Body: body})
			c.eventually(tc.reason, func() bool { return l.told.Load() > 0 })
			took := time.Since(began)
			most, kept := grown(), heap()-before
			t.Logf("%d manifests in %d KiB: kept %d KiB, at most %d KiB, told after %s: %+v", count, len(body)>>10, kept>>10, most>>10, took, l.applied.Load())
			if limit := int64(share*len(body) + allowance); most > limit {
				t.Errorf("%s: %d KiB of heap, limit is %d KiB", tc.reason, most>>10, limit>>10)
			}
			if applied := l.applied.Load(); applied == nil || applied.Status != metav1.ConditionFalse {
				t.Errorf("%s: Applied is %+v", tc.reason, applied)
			}
			runtime.KeepAlive(body)
		})
	}
}

// define makes a kind with a status of any content, for one test.
func (c *testCluster) define() schema.GroupVersionKind {
	c.t.Helper()
	gvk := schema.GroupVersionKind{Group: c.namespace + ".example.com", Version: "v1", Kind: "Large"}
	text := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"larges.%[1]s"},"spec":{"group":%[1]q,
		"scope":"Namespaced","names":{"plural":"larges","singular":"large","kind":"Large","listKind":"LargeList"},"versions":[{"name":"v1","served":true,"storage":true,
		"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, gvk.Group)
	crd := &unstructured.Unstructured{}
	if err := crd.UnmarshalJSON([]byte(text)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.dynamic.Resource(definitionResource()).Create(c.t.Context(), crd, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = c.dynamic.Resource(definitionResource()).Delete(contextOf(c.t), crd.GetName(), metav1.DeleteOptions{})
	})
	return gvk
}

// values of one manifest by name, and how large all of them are.
func (s reportedStatus) values(ordinal int) (byName map[string]workv1.FieldValue, size int) {
	byName = map[string]workv1.FieldValue{}
	if len(s.Manifests) <= ordinal {
		return byName, 0
	}
	for _, v := range s.Manifests[ordinal].StatusFeedbacks.Values {
		byName[v.Name] = v.Value
		if v.Value.String != nil {
			size += len(*v.Value.String)
		}
		if v.Value.JsonRaw != nil {
			size += len(*v.Value.JsonRaw)
		}
	}
	return byName, size
}

// etcd takes requests of 1.5 MiB and API servers of 3 MiB, so a status of 100 MiB
// cannot be; a reader is fed with one below. What is read of the large one that
// can be must not be so large that the hub can store no status of the work at all.
func TestLargeStatusIsReportedWithinBounds(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	gvk := c.define()
	c.startForOCM(h)
	o := reads(".status.text", ".status.n", ".status.list[0]")
	o.ResourceIdentifier = workv1.ResourceIdentifier{Group: gvk.Group, Resource: "larges", Namespace: c.namespace, Name: "*"}
	o.ConditionRules = []workv1.ConditionRule{{Condition: "Large", Type: workv1.CelConditionExpressionsType, CelExpressions: []string{"has(object.status) && object.status.n == 7"}}}
	w := wire.Work{Healthy: true}
	w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{o, c.option(reads(".data.k"))}
	work := c.name("w")
	h.ask(work, 1, w, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"l","namespace":%q}}`, gvk.GroupVersion(), gvk.Kind, c.namespace), c.configMap("beside", "k", "1"))
	h.says(c, work, 1, conditionApplied, metav1.ConditionTrue)
	status := fmt.Sprintf(`{"status":{"n":7,"text":%q,"list":["x"]}}`, strings.Repeat("x", 1<<20))
	larges := c.dynamic.Resource(gvk.GroupVersion().WithResource("larges")).Namespace(c.namespace)
	if _, err := larges.Patch(t.Context(), "l", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	h.says(c, work, 1, "Large", metav1.ConditionTrue)
	var s reportedStatus
	c.eventually("the other values are told", func() bool {
		s = h.said(work)
		read, _ := s.values(0)
		return read["b"].Integer != nil && *read["b"].Integer == 7 && read["c"].String != nil
	})
	if _, size := s.values(0); size > mostFeedback {
		t.Errorf("%d KiB of feedback", size>>10)
		if synced := meta.FindStatusCondition(s.Manifests[0].Conditions, feedback.ConditionType); synced == nil || synced.Status != metav1.ConditionFalse {
			t.Errorf("nothing is said of what is left out: %+v", synced)
		}
	}
	c.patch("beside", `{"data":{"k":"1","more":"x"}}`)
	c.eventually("the manifest beside it is looked after", func() bool { return len(c.get("beside").Data) == 1 })
	h.drop(c, work, 1)
}

// Whatever an object holds, what is read of it is small, and reading takes no more
// than the object does.
func TestHugeStatusIsReadWithinBounds(t *testing.T) {
	const huge = 100 << 20
	condition := func(expression string) workv1.ConditionRule {
		return workv1.ConditionRule{
			Condition: "Large", Type: workv1.CelConditionExpressionsType, CelExpressions: []string{"true"}, MessageExpression: expression,
		}
	}
	for label, tc := range map[string]struct {
		reason string
		paths  []string
		raw    bool
		rules  []workv1.ConditionRule
	}{
		"a path to it":               {reason: "the value is the object", paths: []string{".status.text"}},
		"a path to it, twice":        {reason: "the values are more than the object", paths: []string{".status.text", ".status['text']"}},
		"a path around it":           {reason: "it would be encoded", paths: []string{".status"}, raw: true},
		"paths everywhere":           {reason: "a text is no list of bytes", paths: []string{"..text", ".."}, raw: true},
		"a path that compares":       {reason: "it is compared with a text", paths: []string{`.status[?(@.text=="x")].n`}},
		"a rule that tells it":       {reason: "a message is bounded", rules: []workv1.ConditionRule{condition("object.status.text")}},
		"a rule that makes it twice": {reason: "a value of a rule costs its length", rules: []workv1.ConditionRule{condition("object.status.text + object.status.text")}},
		"a rule that changes it":     {reason: "a value of a rule costs its length", rules: []workv1.ConditionRule{condition("object.status.text.replace('x', 'yyyyyyyyyyyyyyyy')")}},
		"a rule that takes it apart": {reason: "a value of a rule costs its length", rules: []workv1.ConditionRule{condition("string(object.status.text.split('').size())")}},
		"a rule of health":           {reason: "it is not read", rules: []workv1.ConditionRule{{Condition: conditionrules.TypeHealthy, Type: workv1.WellKnownConditionsType}}},
	} {
		t.Run(label, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Large", "metadata": map[string]any{"name": "l"},
				"status": map[string]any{"n": int64(7), "text": strings.Repeat("x", huge)},
			}}
			o := reads(tc.paths...)
			r := &inventory.Reader{
				Generation: 1, Rules: conditionrules.NewCompiler().Compile(tc.rules),
				Feedback: feedback.Compile(o.FeedbackRules, feedback.Options{RawJSON: tc.raw}),
			}
			began, grown := time.Now(), peak()
			got := r.ReadObject(obj)
			most, took := grown(), time.Since(began)
			t.Logf("grown by %d KiB in %s", most>>10, took)
			runtime.KeepAlive(obj)
			if most > int64((share-1)*huge+allowance) {
				t.Errorf("%s: reading takes %d MiB besides the object", tc.reason, most>>20)
			}
			if took > soon {
				t.Errorf("%s: reading takes %s", tc.reason, took)
			}
			read := reportedStatus{WorkStatus: wire.WorkStatus{Manifests: []workv1.ManifestCondition{{StatusFeedbacks: workv1.StatusFeedbackResult{Values: got.Values}}}}}
			if _, size := read.values(0); size > mostFeedback {
				t.Errorf("%s: %d KiB of feedback, and %s", tc.reason, size>>10, got.FeedbackCondition.Reason)
			}
			for _, c := range append(got.Conditions, got.FeedbackCondition) {
				if len(c.Message) > 32<<10 {
					t.Errorf("%s: %s has a message of %d KiB", tc.reason, c.Type, len(c.Message)>>10)
				}
			}
		})
	}
}
