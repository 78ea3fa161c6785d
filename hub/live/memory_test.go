// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
	"github.com/spokelet/spokelet/internal/quota"
)

// measureAllocations is how many bytes f allocates, garbage included.
func measureAllocations(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// fill is an array of as many elements as fit into n bytes.
func fill(element string, n int) string {
	return "[" + strings.Repeat(element+",", n/(len(element)+1)-1) + element + "]"
}

// TestHostileResponseStaysWithinReservation has a cluster answer with documents that
// become many times their size when they are decoded, given types or put into a
// table. All are within ViewBytes.
func TestHostileResponseStaysWithinReservation(t *testing.T) {
	const limit = 8 << 20
	long := resource{gv: schema.GroupVersion{Group: strings.Repeat("a.", 126) + "a", Version: "v1"}, kind: strings.Repeat("A", 63)}
	cases := map[string]struct {
		reason string
		q      viewQuery
		answer string
		most   uint64 // bytes allocated, garbage included
	}{
		"managed fields": {
			reason: "they are not decoded", q: viewQuery{name: "a"},
			answer: `{"metadata":{"resourceVersion":"7","managedFields":` + fill("{}", limit-100) + `}}`, most: 100 << 20,
		},
		"owners of a list": {
			reason: "a list has none", answer: `{"metadata":{"ownerReferences":` + fill("{}", limit-100) + `},"items":[]}`, most: 100 << 20,
		},
		"empty items": {
			reason: "each takes its place", answer: `{"items":` + fill("{}", limit-100) + `}`, most: 100 << 20,
		},
		"numbers for items": {
			reason: "each takes its place", answer: `{"items":` + fill("1", limit-100) + `}`, most: 100 << 20,
		},
		"empty rows": {
			reason: "each takes its place", q: viewQuery{output: livev1alpha1.OutputTable}, answer: `{"rows":` + fill("{}", limit-100) + `}`, most: 100 << 20,
		},
		"marks of HTML": {
			reason: "they stay as they are", q: viewQuery{output: livev1alpha1.OutputTable},
			answer: `{"rows":["` + strings.Repeat("<", limit/2) + `"]}`, most: 100 << 20,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			memory := quota.NewMemory(4*limit, 4*limit)
			held := memoryReservation{clusterAccount: memory.Account("c1")}
			var view *livev1alpha1.ClusterView
			var err error
			took := measureAllocations(func() { view, err = tc.q.readResponse(body(tc.answer), limit, held, long) })
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if took > tc.most {
				t.Errorf("%s: %d MiB were allocated, want at most %d", tc.reason, took>>20, tc.most>>20)
			}
			kept := int64(0)
			for _, o := range view.Objects {
				kept += int64(cap(o.Raw)) + 40
			}
			if view.Table != nil {
				kept += int64(cap(view.Table.Raw))
			}
			if kept > memory.Held() || kept > 2*limit {
				t.Errorf("%s: %d bytes are kept, and %d on the account", tc.reason, kept, memory.Held())
			}
			held.close()
			if memory.Held() != 0 {
				t.Errorf("%s: %d bytes are still held", tc.reason, memory.Held())
			}
		})
	}
}

func TestListMetadataOfResponseIsLimited(t *testing.T) {
	long := strings.Repeat("a", maxMetadata+1)
	for _, answer := range []string{
		`{"kind":"` + long + `","items":[]}`, `{"apiVersion":"` + long + `","items":[]}`,
		`{"metadata":{"continue":"` + long + `"},"items":[]}`, `{"metadata":{"resourceVersion":"` + long + `"},"items":[]}`,
	} {
		for _, q := range []*viewQuery{{}, {output: livev1alpha1.OutputTable}, {name: "a"}} {
			if q.name != "" && !strings.Contains(answer, "resourceVersion") {
				continue
			}
			if _, err := q.readResponseUnaccounted(answer, 1<<20, resource{}); !errors.Is(err, errMetadataTooLong) {
				t.Errorf("%.40s: %v, want that it is too long", answer, err)
			}
		}
	}
}

// TestMemoryLimitOfClusterAffectsItAlone has all of what may be held for one
// cluster be held elsewhere in the hub.
func TestMemoryLimitOfClusterAffectsItAlone(t *testing.T) {
	memory := quota.NewMemory(8<<20, 32<<20)
	taken := memory.Account("c1")
	take := func() {
		if err := taken.Grow(8 << 20); err != nil {
			t.Fatal(err)
		}
	}
	f := &fleet{clusters: map[string]Session{"c1": newTestAgent(t, newFakeCluster().serve), "c2": newTestAgent(t, newFakeCluster().serve)}}
	s := startWith(t, f, allowAll, Config{Memory: memory})
	check := func(when string) {
		if _, failure := s.view(t, "alice", "c1", podsIn("a")); failure == nil || failure.Code != http.StatusTooManyRequests || failure.Details.RetryAfterSeconds != 1 {
			t.Errorf("%s: %+v, want 429 and a second", when, failure)
		}
		many := podsIn("a")
		many.ClusterSelector = &metav1.LabelSelector{}
		v, failure := s.view(t, "alice", "c1", many)
		if failure != nil || v.Status.Summary.Failed != 1 || v.Status.Summary.Items != 2 {
			t.Fatalf("%s: among others: %+v, %+v", when, v, failure)
		}
		if e := v.Status.Clusters[0].Error; e == nil || e.Code != http.StatusTooManyRequests {
			t.Errorf("%s: among others: %+v, want 429", when, e)
		}
	}
	take()
	check("at discovery")
	taken.Shrink(8 << 20)
	if _, failure := s.view(t, "alice", "c1", podsIn("a")); failure != nil {
		t.Fatalf("when there is room: %d %s", failure.Code, failure.Message)
	}
	take()
	check("at the answer")
	taken.Close()
	if memory.Held() != 0 {
		t.Errorf("%d bytes are still held", memory.Held())
	}
}

// TestReadCatalogFailsWithoutMemory: a group version that cannot be read is
// left out, and one for which there is no room is not.
func TestReadCatalogFailsWithoutMemory(t *testing.T) {
	bodies := map[string]string{"/api": noCore, "/apis": groups(8)}
	for i := range 8 {
		bodies[fmt.Sprintf("/apis/x.io/v%d", i)] = `{"resources":[` + thing + `]}`
	}
	memory := quota.NewMemory(documentCost+100, 32<<20)
	c := newCatalogs(memory)
	if _, err := c.get(t.Context(), "c1", &discoverySession{bodies: bodies}, alice(), nil); !errors.Is(err, errMemory) {
		t.Errorf("error %v, want that there is no room", err)
	}
	if known, _ := c.lookup("c1"); known != nil || memory.Held() != 0 {
		t.Errorf("catalog %v is kept, and %d bytes are held", known, memory.Held())
	}
}

func TestCatalogsDropLargestBeyondLimit(t *testing.T) {
	c := newCatalogs(nil)
	c.store("small", &catalog{size: 1})
	c.store("large", &catalog{size: maxCatalogs - 10})
	c.store("other", &catalog{size: 10})
	for name, want := range map[string]bool{"small": true, "large": false, "other": true} {
		if known, _ := c.lookup(name); (known != nil) != want {
			t.Errorf("%s: kept %t, want %t", name, known != nil, want)
		}
	}
}
