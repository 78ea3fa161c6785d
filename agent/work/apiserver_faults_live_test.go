// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// soon is how fast a reason is seen on the hub, on a machine that stalls for
	// seconds: no pause between two attempts, the longest of which is a minute, nor a
	// request that is tried over and over by its client, comes before it.
	soon = 30 * time.Second
	// faultTime is how long a fault lasts; at the longest pause of a retry it could
	// last for hours without another request.
	faultTime = 6 * time.Second
	// calm bounds the requests of two works and three watches in that time, each
	// of which is tried after pauses that double.
	calm = 60
)

// failsSoon waits until a generation is said to have failed, for a reason.
func (h *testHub) failsSoon(c *testCluster, name string, generation int64, want string) {
	c.t.Helper()
	began := time.Now()
	s := h.is(c, name, generation, conditionApplied, metav1.ConditionFalse)
	if took := time.Since(began); took > soon {
		c.t.Errorf("the reason is seen after %s, want %s", took, soon)
	}
	if got := message(s, 0); !regexp.MustCompile(want).MatchString(got) {
		c.t.Errorf("message = %q, want %q in it", got, want)
	}
}

// sitOut lets a fault last, and returns what was asked meanwhile.
func (f *faultProxy) sitOut() map[string]int {
	f.reset()
	<-time.After(faultTime)
	return f.reset()
}

// meets waits until a fault has met a write.
func (f *faultProxy) meets(c *testCluster) {
	c.t.Helper()
	c.eventually("a write is refused", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.seen["write"] > 0
	})
}

func TestAPIServerOutageIsReportedAndSurvived(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	f := c.front()
	c.start(h, f.through)
	changed, deleted, made := c.name("changed"), c.name("deleted"), c.name("made")
	h.want(changed, 1, c.configMap("changed", "k", "1"))
	h.want(deleted, 1, c.configMap("deleted", "k", "1"))
	h.is(c, changed, 1, conditionApplied, metav1.ConditionTrue)
	h.is(c, deleted, 1, conditionApplied, metav1.ConditionTrue)

	f.stop()
	h.want(changed, 2, c.configMap("changed", "k", "2"))
	h.want(made, 1, c.configMap("made", "k", "1"))
	h.failsSoon(c, changed, 2, "connection refused")
	h.failsSoon(c, made, 1, "connection refused")
	h.want(deleted, 2)
	if got := f.sitOut(); sum(got) > calm {
		t.Errorf("%d requests in %s without an API server: %v", sum(got), faultTime, got)
	}
	if h.status(deleted).Finalized {
		t.Error("a work is finalized whose objects nobody could delete")
	}

	f.start()
	h.is(c, changed, 2, conditionApplied, metav1.ConditionTrue)
	h.is(c, made, 1, conditionApplied, metav1.ConditionTrue)
	h.finalized(c, deleted)
	want := map[string]map[string]string{"changed": {"k": "2"}, "made": {"k": "1"}}
	if got := c.configMaps(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("objects: got %v, want %v", got, want)
	}
	// The watches are back as well: drift is seen.
	if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "made", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("drift repaired", func() bool { return c.configMaps()["made"] != nil })
}

func TestMalformedAPIServerResponsesAreReportedAndSurvived(t *testing.T) {
	t.Parallel()
	const page = "<!DOCTYPE html><html><body><h1>It works!</h1></body></html>"
	for label, tc := range map[string]struct {
		fault func(http.ResponseWriter, *http.Request) bool
		// want depends on which request is answered first, the anchor's or the object's.
		want string
	}{
		"a web page":            {fault: with(http.StatusOK, "text/html", page), want: "text/html|invalid character '<'"},
		"a web page as JSON":    {fault: with(http.StatusOK, "application/json", page), want: "invalid character '<'"},
		"a gateway's page":      {fault: with(http.StatusBadGateway, "text/html", page), want: "an error on the server"},
		"an internal error":     {fault: with(http.StatusInternalServerError, "text/plain", "boom"), want: "an error on the server"},
		"no content":            {fault: with(http.StatusOK, "application/json", ""), want: "unexpected end of JSON input|0-length response"},
		"half an object":        {fault: with(http.StatusOK, "application/json", `{"apiVersion":"v1","kind":"Conf`), want: "unexpected end of JSON input"},
		"another kind":          {fault: with(http.StatusOK, "application/json", `{"apiVersion":"v1","kind":"Pod","metadata":{}}`), want: "manifest: .+"},
		"a number":              {fault: with(http.StatusOK, "application/json", `42`), want: "manifest: .+"},
		"a redirect to nowhere": {fault: with(http.StatusFound, "text/html", page), want: "manifest: .+"},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			c, h := newCluster(t), newHub(t)
			f := c.front()
			c.start(h, f.through)
			name := c.name("nonsense")
			h.want(name, 1, c.configMap("n", "k", "1"))
			h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
			f.answer(tc.fault)
			f.reset()
			began := time.Now()
			h.want(name, 2, c.configMap("n", "k", "2"))
			h.failsSoon(c, name, 2, tc.want)
			h.want(name, 3, c.configMap("n", "k", "3"))
			h.is(c, name, 3, conditionApplied, metav1.ConditionFalse)
			if got := f.reset(); sum(got) > calm {
				t.Errorf("%d requests in %s: %v", sum(got), time.Since(began), got)
			}
			f.answer(nil)
			h.is(c, name, 3, conditionApplied, metav1.ConditionTrue)
			if got := c.configMaps()["n"]["k"]; got != "3" {
				t.Errorf("k = %q", got)
			}
			h.want(name, 4)
			h.finalized(c, name)
		})
	}
}

func TestWatchesClosingEverySecondMissNothing(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	f := c.front()
	c.start(h, f.through)
	name := c.name("flapping")
	h.want(name, 1, c.configMap("w", "k", "1"))
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	c.recorded(name)
	f.endWatchesAfter(time.Second)
	got := f.sitOut()
	if got["list"] > 1 || got["write"] > 0 || got["watch"] == 0 || sum(got) > calm {
		t.Errorf("requests in %s: %v, want watches that resume, and few", faultTime, got)
	}
	// What happens between two watches is told by the next.
	if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("drift repaired", func() bool { return c.configMaps()["w"] != nil })
}

// recorded waits until the anchor of a work lists what was applied: the last write.
func (c *testCluster) recorded(name string) {
	c.t.Helper()
	c.eventually("anchor recorded", func() bool {
		a, ok := c.anchor(name)
		return ok && strings.Contains(fmt.Sprint(a.Object["status"]), "uid:")
	})
}

// conflicts refuses the writes of a path's suffix as the API server refuses those
// that were overtaken.
func conflicts(suffix string) func(http.ResponseWriter, *http.Request) bool {
	const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"message":"the object has been modified"}`
	refuse := with(http.StatusConflict, "application/json", body)
	return func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, suffix) && refuse(w, r)
	}
}

func TestConflictStormEnds(t *testing.T) {
	t.Parallel()
	for label, suffix := range map[string]string{"on the anchor's status": "/status", "on the object": "/configmaps/s"} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			c, h := newCluster(t), newHub(t)
			f := c.front()
			c.start(h, f.through)
			f.answer(conflicts(suffix))
			name := c.name("storm")
			f.reset()
			h.want(name, 1, c.configMap("s", "k", "1"))
			f.meets(c)
			if got := f.sitOut(); sum(got) > calm || got["write"] == 0 {
				t.Errorf("%d requests in %s of conflicts: %v", sum(got), faultTime, got)
			}
			f.answer(nil)
			h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
			c.recorded(name)
			h.want(name, 2)
			h.finalized(c, name)
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	f := c.front()
	c.start(h, f.through)
	name := c.name("busy")
	h.want(name, 1, c.configMap("b", "k", "1"))
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	f.answer(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Retry-After", "2")
		return with(http.StatusTooManyRequests, "application/json",
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":2}}`)(w, r)
	})
	h.want(name, 2, c.configMap("b", "k", "2"))
	began := time.Now()
	got := f.sitOut()
	if took := time.Since(began); got["write"] > int(took/(2*time.Second))+1 {
		t.Errorf("writes in %s: %v, want one every two seconds", took, got)
	}
	f.answer(nil)
	h.is(c, name, 2, conditionApplied, metav1.ConditionTrue)
	if got := c.configMaps()["b"]["k"]; got != "2" {
		t.Errorf("k = %q", got)
	}
}
