// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/internal/impersonation"
)

// discoverySession is a session whose cluster serves what it is made of. What it does
// not hold is unavailable, as an extension that is down.
type discoverySession struct {
	brokenSession
	bodies map[string]string
	gate   chan struct{} // if set, each answer takes one of it

	mu        sync.Mutex
	asked     map[string]int // guarded by mu
	now, most int            // guarded by mu: requests at once
}

func (d *discoverySession) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	if d.asked == nil {
		d.asked = map[string]int{}
	}
	d.asked[r.URL.Path]++
	d.now++
	d.most = max(d.most, d.now)
	d.mu.Unlock()
	if d.gate != nil {
		<-d.gate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now--
	body, ok := d.bodies[r.URL.Path]
	code := http.StatusOK
	if !ok {
		code = http.StatusServiceUnavailable
	}
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func (d *discoverySession) requests() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, times := range d.asked {
		n += times
	}
	return n
}

func alice() impersonation.Principal {
	return impersonation.Principal{Kind: impersonation.User, User: "alice"}
}

const (
	noCore   = `{"kind":"APIVersions","versions":[]}`
	thing    = `{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["list"]}`
	thingOne = `{"resource":"things","singularResource":"thing","scope":"Namespaced","responseKind":{"group":"x.io","version":"v1","kind":"Thing"},"verbs":["list"]`
)

// groups lists n group versions by their names.
func groups(n int) string {
	return `{"kind":"APIGroupList","groups":[{"name":"x.io","versions":[` + repeat(n, func(i int) string {
		return fmt.Sprintf(`{"groupVersion":"x.io/v%d","version":"v%d"}`, i, i)
	}) + `]}]}`
}

func repeat(n int, one func(int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = one(i)
	}
	return strings.Join(all, ",")
}

func TestReadCatalogReadsAggregatedAndLegacyDiscovery(t *testing.T) {
	listed := &discoverySession{bodies: map[string]string{
		"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
		"/api/v1": `{"resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get"],"shortNames":["po"]},{"name":"pods/log","kind":"Pod","verbs":["get"]},{"name":"bindings","kind":"Binding","verbs":["create"]}]}`,
		"/apis": `{"groups":[{"name":"x.io","versions":[{"version":"v1"},{"version":"v2"}],"preferredVersion":{"version":"v2"}},` +
			`{"name":"down.io","versions":[{"version":"v1"}]},{"name":"odd.io","versions":[{"version":"v1"}]},{"name":"gone.io","versions":null}]}`,
		"/apis/x.io/v1":   `{"resources":[` + thing + `]}`,
		"/apis/x.io/v2":   `{"groupVersion":"x.io/v2","resources":[` + thing + `]}`,
		"/apis/odd.io/v1": `{"resources":[` + thing + `,<html>`,
	}}
	whole := &discoverySession{bodies: map[string]string{
		"/api": `{"kind":"APIGroupDiscoveryList","metadata":{},"items":[{"metadata":{"creationTimestamp":null},"versions":[{"version":"v1","freshness":"Current","resources":[` +
			`{"resource":"pods","singularResource":"pod","scope":"Namespaced","responseKind":{"kind":"Pod"},"verbs":["get"],"shortNames":["po"],"subresources":[{"subresource":"log","verbs":["get"]}]},` +
			`{"resource":"bindings","scope":"Namespaced","responseKind":{"kind":"Binding"},"verbs":["create"]}]}]}]}`,
		"/apis": `{"items":[{"versions":[{"resources":[` + thingOne + `}],"version":"v2"},{"version":"v1","resources":[` + thingOne + `}]}],"metadata":{"name":"x.io"}},` +
			`{"metadata":{"name":"down.io"},"versions":[{"version":"v1","resources":[` + thingOne + `}],"freshness":"Stale"}]}]}`,
	}}
	gv := func(group, v string) schema.GroupVersion { return schema.GroupVersion{Group: group, Version: v} }
	want := []resource{
		{gv: gv("", "v1"), plural: "pods", singular: "pod", kind: "Pod", shortNames: []string{"po"}, namespaced: true},
		{gv: gv("x.io", "v2"), plural: "things", singular: "thing", kind: "Thing", namespaced: true},
		{gv: gv("x.io", "v1"), plural: "things", singular: "thing", kind: "Thing", namespaced: true},
	}
	for form, session := range map[string]*discoverySession{"group versions one by one": listed, "all in two documents": whole} {
		t.Run(form, func(t *testing.T) {
			got, err := readCatalog(t.Context(), "c1", session, alice(), memoryReservation{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.resources, cmp.AllowUnexported(resource{})); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
	if n := whole.requests(); n != 2 {
		t.Errorf("%d requests where two documents hold everything", n)
	}
}

// TestReadCatalogFailsBeyondLimits has a cluster claim to serve too much, in each way that
// costs the hub something.
func TestReadCatalogFailsBeyondLimits(t *testing.T) {
	// Long names, as values are what takes time.
	name := strings.Repeat("a", 1000)
	megabyte := strings.Repeat(`{"name":"`+name+`/b","verbs":["get"]},`, (1<<20)/1000)
	manyMegabytes := map[string]string{"/api": noCore, "/apis": groups(20)}
	manyResources := map[string]string{"/api": noCore, "/apis": groups(3)}
	for i := range 20 {
		manyMegabytes[fmt.Sprintf("/apis/x.io/v%d", i)] = `{"resources":[` + megabyte + `{}]}`
		manyResources[fmt.Sprintf("/apis/x.io/v%d", i)] = `{"resources":[` + repeat(maxResources/2, func(int) string { return thing }) + `]}`
	}
	cases := map[string]struct {
		reason   string
		bodies   map[string]string
		requests int // at most
		want     string
	}{
		"group versions": {
			reason: "none is asked for when there are too many", requests: 2, want: "more than 1000 group versions",
			bodies: map[string]string{"/api": noCore, "/apis": groups(maxVersions + 1)},
		},
		"group versions without a name": {
			reason: "they take memory all the same", requests: 2, want: "more than 1000 group versions",
			bodies: map[string]string{"/api": noCore, "/apis": `{"items":[{"versions":[` + repeat(maxVersions+1, func(int) string { return "{}" }) + `]}]}`},
		},
		"core versions": {
			reason: "they are group versions too", requests: 1, want: "more than 1000 group versions",
			bodies: map[string]string{"/api": `{"versions":[` + repeat(maxVersions+1, func(int) string { return `"v1"` }) + `]}`},
		},
		"resources": {
			reason: "the bound is on all documents together", requests: 5, want: "more than 20000 resources",
			bodies: manyResources,
		},
		"resources in one document": {
			reason: "as they are read, not thereafter", requests: 2, want: "more than 20000 resources",
			bodies: map[string]string{"/api": noCore, "/apis": `{"items":[{"versions":[{"resources":[` + repeat(maxResources+1, func(int) string { return thingOne + "}" }) + `]}]}]}`},
		},
		"bytes": {
			reason: "the bound is on all documents together", requests: 22, want: "more than 16777216 bytes",
			bodies: manyMegabytes,
		},
		"bytes of nothing": {
			reason: "a group without versions is not kept, and read no longer than any other", requests: 2, want: "more than 16777216 bytes",
			bodies: map[string]string{"/api": noCore, "/apis": `{"groups":[` + strings.Repeat(`{"name":"`+name+`"},`, maxDiscovery/1000) + `{}]}`},
		},
		"one value": {
			reason: "it would have to be held whole", requests: 2, want: "a value of more than 65536 bytes",
			bodies: map[string]string{"/api": noCore, "/apis": `{"groups":[{"name":"` + strings.Repeat("a", 1<<20) + `"}]}`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			session := &discoverySession{bodies: tc.bodies}
			_, err := readCatalog(t.Context(), "c1", session, alice(), memoryReservation{})
			if !errors.Is(err, errDiscoveryLimit) || !strings.HasSuffix(err.Error(), tc.want) {
				t.Errorf("%s: error %v, want that of %s", tc.reason, err, tc.want)
			}
			if n := session.requests(); n > tc.requests {
				t.Errorf("%s: %d requests, want at most %d", tc.reason, n, tc.requests)
			}
		})
	}
}

func TestReadCatalogSucceedsAtLimits(t *testing.T) {
	bodies := map[string]string{"/api": noCore, "/apis": groups(maxVersions)}
	for i := range maxVersions {
		bodies[fmt.Sprintf("/apis/x.io/v%d", i)] = `{"resources":[` + repeat(maxResources/maxVersions, func(int) string { return thing }) + `]}`
	}
	c, err := readCatalog(t.Context(), "c1", &discoverySession{bodies: bodies}, alice(), memoryReservation{})
	if err != nil || len(c.resources) != maxResources {
		t.Errorf("%d resources, %v; want %d", len(c.resources), err, maxResources)
	}
}

func TestReadCatalogLimitsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session := &discoverySession{bodies: map[string]string{"/api": noCore, "/apis": groups(100)}, gate: make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			_, err := readCatalog(t.Context(), "c1", session, alice(), memoryReservation{})
			done <- err
		}()
		for range 102 {
			synctest.Wait() // as many are asked for as ever will be
			session.gate <- struct{}{}
		}
		if err := <-done; err != nil || session.most != discoveryConcurrency {
			t.Errorf("%d documents were asked for at once, %v; want %d", session.most, err, discoveryConcurrency)
		}
	})
}

// TestCatalogsReadDiscoveryOncePerCluster also has one of those who wait give up.
func TestCatalogsReadDiscoveryOncePerCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session := &discoverySession{bodies: map[string]string{"/api": noCore, "/apis": groups(1), "/apis/x.io/v0": `{"resources":[` + thing + `]}`}, gate: make(chan struct{})}
		c := newCatalogs(nil)
		var asking sync.WaitGroup
		for range 10 {
			asking.Go(func() {
				if got, err := c.get(t.Context(), "c1", session, alice(), nil); err != nil || len(got.resources) != 1 {
					t.Errorf("catalog %v, %v", got, err)
				}
			})
		}
		synctest.Wait()
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.get(impatient, "c1", session, alice(), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("error of one who does not wait: %v", err)
		}
		close(session.gate)
		asking.Wait()
		if n := session.requests(); n != 3 {
			t.Errorf("%d requests, want one reading: 3", n)
		}
	})
}

// FuzzReadCatalog reads whatever a cluster may send for each kind of document.
func FuzzReadCatalog(f *testing.F) {
	f.Add(`{"versions":["v1"]}`, `{"groups":[{"name":"x.io","versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}}]}`, `{"resources":[`+thing+`]}`)
	f.Add(`{"items":[{"versions":[{"version":"v1","resources":[`+thingOne+`}]}]}]}`, `{"items":null}`, ``)
	f.Add(`{"versions":[null,{}]}`, `{"groups":[[]]}`, `{"resources":{}}`)
	f.Fuzz(func(t *testing.T, api, apis, list string) {
		bodies := map[string]string{"/api": api, "/apis": apis, "/api/v1": list, "/apis/x.io/v1": list}
		c, err := readCatalog(t.Context(), "c1", &discoverySession{bodies: bodies}, alice(), memoryReservation{})
		if err != nil {
			return
		}
		for _, r := range c.resources {
			if !r.hasValidNames() || !isValidVersion(r.gv) || len(r.shortNames) > maxShortNames {
				t.Errorf("resource %+v is kept", r)
			}
		}
		if len(c.resources) > 0 {
			if arg, ok := parseResourceArg(c.resources[0].plural); ok {
				if _, found := c.find(arg); !found {
					t.Errorf("%q is not found by its own name", c.resources[0].plural)
				}
			}
		}
	})
}
