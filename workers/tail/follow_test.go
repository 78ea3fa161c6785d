// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
)

func TestTailReceivesEventsFromAllClusters(t *testing.T) {
	inWorld(t, []string{"spoke1", "spoke2"}, func(w *world) {
		one, two := w.hub.start("spoke1", "a", "1"), w.hub.start("spoke2", "b", "2")
		r, _ := w.open(Filters{})
		w.hub.print(one, "what a script printed")
		w.hub.call(one, "other", "of another script")
		w.hub.call(one, "hello", "from one")
		r.expectEvent("from one")
		w.hub.print(two, strings.Repeat("x", maxLine+1))
		w.hub.call(two, "hello", "from two")
		r.expectEvent("from two")
		r.leave()
	})
}

func TestTailAppliesFilters(t *testing.T) {
	inWorld(t, []string{"spoke1"}, func(w *world) {
		p := w.hub.start("spoke1", "a", "1")
		f, err := ParseFilters([]byte(`{"filters":[{"query":"need"}]}`))
		if err != nil {
			w.Fatal(err)
		}
		r, _ := w.open(f)
		w.hub.call(p, "hello", "hay")
		w.hub.call(p, "hello", "a needle")
		r.expectEvent("a needle")
		r.leave()
	})
}

func TestNewClusterIsFollowed(t *testing.T) {
	inWorld(t, []string{"spoke1"}, func(w *world) {
		r, _ := w.open(Filters{})
		w.hub.place("spoke1", "spoke2")
		p := w.hub.start("spoke2", "b", "2")
		synctest.Wait()
		w.hub.call(p, "hello", "from the new one")
		r.expectEvent("from the new one")

		before := w.hub.requests()
		w.hub.place("spoke1")
		synctest.Wait()
		if after := w.hub.requests(); after >= before {
			w.Errorf("%d requests are open after a cluster was removed, and were %d", after, before)
		}
		w.hub.call(p, "hello", "from who knows")
		r.expectNothing(5 * time.Second)
		r.leave()
	})
}

func TestReplacementPodIsFollowed(t *testing.T) {
	cases := map[string]struct{ name, reason string }{
		"another name":  {name: "b", reason: "as pods of a Deployment have"},
		"the same name": {name: "a", reason: "it is another pod all the same"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, []string{"spoke1"}, func(w *world) {
				old := w.hub.start("spoke1", "a", "1")
				r, _ := w.open(Filters{})
				w.hub.call(old, "hello", "old")
				r.expectEvent("old")
				w.hub.stop("spoke1", "a", "1")
				replaced := w.hub.start("spoke1", tc.name, "2")
				synctest.Wait()
				w.hub.call(replaced, "hello", "new")
				if diff := cmp.Diff("new", r.event()); diff != "" {
					w.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				r.expectNothing(time.Minute) // that the old one is away is no failure
				r.leave()
			})
		})
	}
}

func TestUnreachableClusterIsReportedOnce(t *testing.T) {
	inWorld(t, []string{"spoke1", "spoke2"}, func(w *world) {
		one, two := w.hub.start("spoke1", "a", "1"), w.hub.start("spoke2", "b", "2")
		w.hub.refuse("spoke2", status(http.StatusServiceUnavailable, "the cluster is away"))
		r, _ := w.open(Filters{})
		r.expectEvent("spokelet: the logs of cluster spoke2 cannot be read: the cluster is away")

		before := w.hub.asked("spoke2")
		r.expectNothing(time.Minute)
		if asked := w.hub.asked("spoke2") - before; asked < 3 || asked > 10 {
			w.Errorf("it was asked %d times in a minute, and 3 to 10 would be with growing pauses", asked)
		}
		w.hub.call(one, "hello", "of the other one")
		r.expectEvent("of the other one")

		w.hub.refuse("spoke2", nil)
		r.expectNothing(time.Minute)
		w.hub.call(two, "hello", "is back")
		r.expectEvent("is back")

		w.hub.refuse("spoke2", status(http.StatusServiceUnavailable, "it is away again"))
		w.hub.server.CloseClientConnections()
		r.expectEvent("spokelet: the logs of cluster spoke2 cannot be read: it is away again")
		r.expectNothing(time.Minute) // its pod cannot be read either, which is no other news
		r.leave()
	})
}

func TestFailingPodIsReportedAfterRetries(t *testing.T) {
	inWorld(t, []string{"spoke1"}, func(w *world) {
		p := w.hub.start("spoke1", "a", "1")
		p.refuse = status(http.StatusForbidden, "pods is forbidden")
		r, _ := w.open(Filters{})
		r.expectEvent("spokelet: the logs of cluster spoke1 cannot be read: pod a: pods is forbidden")
		if p.posts != podFailures {
			w.Errorf("it was said after %d attempts and not after %d", p.posts, podFailures)
		}
		r.leave()
	})
}

func TestDeletedPodIsNotReported(t *testing.T) {
	inWorld(t, []string{"spoke1"}, func(w *world) {
		w.hub.start("spoke1", "a", "1")
		r, _ := w.open(Filters{})
		w.hub.leave("spoke1", "a", "1")
		r.expectNothing(40 * time.Second)
		r.leave()
	})
}

func TestEventRequestsStopWithTail(t *testing.T) {
	inWorld(t, []string{"spoke1"}, func(w *world) {
		p := w.hub.start("spoke1", "a", "1")
		r, _ := w.open(Filters{})
		// Longer than the watches live, which are resumed.
		r.expectNothing(25 * time.Minute)
		w.hub.call(p, "hello", "late")
		r.expectEvent("late")
		r.leave()
		synctest.Wait()
		posts := p.posts
		time.Sleep(time.Minute)
		if p.posts != posts {
			w.Errorf("the pod was asked for events %d times after the client had gone", p.posts-posts)
		}
	})
}

func TestNothingIsFollowedBeforeOpen(t *testing.T) {
	inWorld(t, []string{"spoke1", "spoke2"}, func(w *world) {
		w.hub.start("spoke1", "a", "1")
		tail := w.create(Filters{})
		synctest.Wait()
		if n := w.hub.requests(); n != 0 {
			w.Errorf("%d requests are open before the tail is", n)
		}
		r, _ := w.dial(tail.Path)
		synctest.Wait()
		if n := w.hub.requests(); n != 4 {
			w.Errorf("%d requests are open and not 4: of WorkerBundles, of pods in two clusters and of a log", n)
		}
		r.leave()
		synctest.Wait()
		if n := w.hub.requests(); n != 0 {
			w.Errorf("%d requests are open after the client has gone", n)
		}
		if status, _ := w.get(tail.Path); status != http.StatusNotFound {
			w.Errorf("the tail is still there: %d", status)
		}
	})
}

func TestHubErrorIsReported(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		tail, err := w.tails.Create(Script{Account: "5678", Namespace: "team-a", Name: "hello"}, jane, Filters{})
		if err != nil {
			w.Fatal(err)
		}
		r, _ := w.dial(tail.Path)
		r.expectEvent("spokelet: the clusters of the account cannot be listed: the selector is not that of the account")
		r.leave()
	})
}

func TestClusterNamesMergeBundles(t *testing.T) {
	on := func(names ...string) bundleObject {
		var b bundleObject
		for _, name := range names {
			b.Status.Clusters = append(b.Status.Clusters, struct {
				Name string `json:"name"`
			}{name})
		}
		return b
	}
	got := clusterNames(map[string]bundleObject{"one": on("spoke2", "spoke1"), "two": on("spoke2", "spoke3"), "other": {}})
	if diff := cmp.Diff([]string{"spoke1", "spoke2", "spoke3"}, got); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
}

func TestContainerNameMatchesPlacement(t *testing.T) {
	work, err := os.ReadFile("../placement/testdata/none.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)containers:\n(.*\n)*? +name: ` + container + `$`).Match(work) {
		t.Errorf("no container of a work is called %s", container)
	}
}

func TestPublicReasonHidesAddresses(t *testing.T) {
	refused := apierrors.NewForbidden(bundlev1alpha1.GroupVersion.WithResource("workerbundles").GroupResource(), "", errors.New("no rights"))
	cases := map[string]struct {
		err    error
		want   string
		reason string
	}{
		"an API's answer": {
			err: refused, want: refused.Error(), reason: "it says what is to be done",
		},
		"a pod's": {
			err: &partError{part: "pod a", err: fmt.Errorf("x: %w", errLogEnded)}, want: "pod a: the log ended", reason: "the pod is named",
		},
		"a refused connection": {
			err:  &url.Error{Op: "Get", URL: "https://10.0.0.1/x", Err: errors.New("dial tcp 10.0.0.1:443: refused")},
			want: "the connection failed", reason: "the address of the hub is nobody's business",
		},
		"a timeout": {
			err: &url.Error{Op: "Get", URL: "https://10.0.0.1/x", Err: context.DeadlineExceeded}, want: "no answer in time", reason: "as above",
		},
		"a long answer": {
			err: &apierrors.StatusError{ErrStatus: *status(500, strings.Repeat("é", maxReason))}, want: strings.Repeat("é", maxReason/2-2) + "...", reason: "an event is small",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, publicReason(tc.err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
