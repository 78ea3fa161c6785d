// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"

	v1 "github.com/spokelet/spokelet/examples/request-state/api/v1"
	"github.com/spokelet/spokelet/examples/request-state/flow"
	"github.com/spokelet/spokelet/examples/request-state/generated/clientset/versioned/fake"
)

const delay = 2 * time.Second

func request(name, job, state string) *v1.RequestState {
	return &v1.RequestState{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
		Spec:       v1.RequestStateSpec{RequestUID: name, Job: job, State: state},
	}
}

// A rig runs one director, and changes requests as others do.
type rig struct {
	*Director
	client *fake.Clientset
	result chan error
}

func newRig(t *testing.T, objects ...runtime.Object) *rig {
	client := fake.NewSimpleClientset(objects...)
	d := &Director{Client: client, Namespace: "n", Delay: delay, Log: ktesting.NewLogger(t, ktesting.DefaultConfig)}
	return &rig{Director: d, client: client, result: make(chan error, 1)}
}

func (r *rig) start(ctx context.Context) {
	go func() { r.result <- r.Run(ctx) }()
	synctest.Wait()
}

func (r *rig) ended() bool { return len(r.result) > 0 }

// requests returns those that are there, without one of the name given.
func (r *rig) requests(t *testing.T, without string) []v1.RequestState {
	t.Helper()
	list, err := r.client.ComV1().RequestStates("n").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var found []v1.RequestState
	for _, item := range list.Items {
		if item.Name != without {
			found = append(found, item)
		}
	}
	return found
}

func (r *rig) set(t *testing.T, name string, change func(*v1.RequestState)) {
	t.Helper()
	requests := r.client.ComV1().RequestStates("n")
	object, err := requests.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(object)
	if _, err := requests.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func complete(r *v1.RequestState) { r.Spec.State = flow.Completed }

func TestADirectorTakesItsRequestThroughBothJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := request("left", flow.Job2, flow.Completed)
		r := newRig(t, left)
		r.start(t.Context())
		made := r.requests(t, "left")
		if len(made) != 1 {
			t.Fatalf("got %v", made)
		}
		name := made[0].Name
		if want := (v1.RequestStateSpec{RequestUID: name, Job: flow.Job1, State: flow.Requested}); made[0].Spec != want {
			t.Errorf("got %v, want %v", made[0].Spec, want)
		}
		r.set(t, name, complete)
		time.Sleep(delay)
		synctest.Wait()
		if got := flow.At(&r.requests(t, "left")[0]); got != (flow.Step{Job: flow.Job2, State: flow.Requested}) {
			t.Errorf("got %s", got)
		}
		r.set(t, "left", func(r *v1.RequestState) { r.Spec.Job = flow.Job1 })
		time.Sleep(time.Hour)
		if r.ended() {
			t.Fatalf("it ended: %v", <-r.result)
		}
		r.set(t, name, complete)
		if !r.ended() {
			t.Error("it is not finished at once")
		}
		if err := <-r.result; err != nil {
			t.Error(err)
		}
		left.Spec.Job = flow.Job1
		if diff := cmp.Diff([]v1.RequestState{*left}, r.requests(t, name)); diff != "" {
			t.Errorf("somebody else's request (-want +got):\n%s", diff)
		}
		if len(r.requests(t, "left")) != 1 {
			t.Error("the request is deleted, which nobody wanted")
		}
	})
}

func TestADirectorContinuesWhatAnotherOneBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, request("old", flow.Job1, flow.Completed))
		r.Request, r.Cleanup = "old", true
		r.start(t.Context())
		time.Sleep(delay)
		synctest.Wait()
		if got := flow.At(&r.requests(t, "")[0]); got != (flow.Step{Job: flow.Job2, State: flow.Requested}) {
			t.Errorf("got %s", got)
		}
		r.set(t, "old", complete)
		if err := <-r.result; err != nil {
			t.Error(err)
		}
		if left := r.requests(t, ""); len(left) != 0 {
			t.Errorf("not cleaned up: %v", left)
		}
	})
}

func TestAFlowThatCannotBeFinishedIsAnError(t *testing.T) {
	cases := map[string]struct {
		reason string
		begin  string // state in which the director finds its request
		then   func(t *testing.T, r *rig, cancel context.CancelFunc)
		want   error
	}{
		"deleted": {
			reason: "nobody makes it again",
			then: func(t *testing.T, r *rig, _ context.CancelFunc) {
				_ = r.client.ComV1().RequestStates("n").Delete(t.Context(), "r", metav1.DeleteOptions{})
			},
			want: ErrGone,
		},
		"deleted while the next job is prepared": {
			reason: "as above", begin: flow.Completed,
			then: func(t *testing.T, r *rig, _ context.CancelFunc) {
				_ = r.client.ComV1().RequestStates("n").Delete(t.Context(), "r", metav1.DeleteOptions{})
			},
			want: ErrGone,
		},
		"being deleted": {
			reason: "a deletion is not taken back",
			then: func(t *testing.T, r *rig, _ context.CancelFunc) {
				r.set(t, "r", func(r *v1.RequestState) {
					r.Finalizers, r.DeletionTimestamp = []string{"a/b"}, &metav1.Time{Time: time.Unix(1, 0)}
				})
			},
			want: ErrGone,
		},
		"replaced": {
			reason: "an object of that name is not the one that it made",
			then: func(t *testing.T, r *rig, _ context.CancelFunc) {
				r.set(t, "r", func(r *v1.RequestState) { r.UID = "another" })
			},
			want: ErrGone,
		},
		"changed": {
			reason: "what that state means is for others to say",
			then: func(t *testing.T, r *rig, _ context.CancelFunc) {
				r.set(t, "r", func(r *v1.RequestState) { r.Spec.State = "PAUSED" })
			},
			want: ErrRefused,
		},
		"interrupted": {
			reason: "only a finished flow is a success",
			then:   func(_ *testing.T, _ *rig, cancel context.CancelFunc) { cancel() },
			want:   context.Canceled,
		},
		"interrupted while the next job is prepared": {
			reason: "as above", begin: flow.Completed,
			then: func(_ *testing.T, _ *rig, cancel context.CancelFunc) { cancel() },
			want: context.Canceled,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state := flow.Requested
				if c.begin != "" {
					state = c.begin
				}
				r := newRig(t, request("r", flow.Job1, state))
				r.Request = "r"
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r.start(ctx)
				c.then(t, r, cancel)
				if err := <-r.result; !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v, as %s", err, c.want, c.reason)
				}
			})
		})
	}
}

func TestARequestThatWasGoneBeforeIsAnError(t *testing.T) {
	r := newRig(t)
	r.Request = "r"
	if err := r.Run(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestARequestThatWasSentTwiceIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.client.PrependReactor("create", "requeststates", func(action clienttesting.Action) (bool, runtime.Object, error) {
			made := action.(clienttesting.CreateAction).GetObject().(*v1.RequestState)
			if err := r.client.Tracker().Create(action.GetResource(), made, "n"); err != nil {
				t.Error(err)
			}
			return true, nil, apierrors.NewAlreadyExists(v1.Resource("requeststates"), made.Name)
		})
		r.start(t.Context())
		if r.ended() {
			t.Fatal(<-r.result)
		}
		r.set(t, r.requests(t, "")[0].Name, func(r *v1.RequestState) { r.Spec.Job, r.Spec.State = flow.Job2, flow.Completed })
		if err := <-r.result; err != nil {
			t.Error(err)
		}
	})
}

func TestACleanupThatFailsIsAnErrorUnlessItIsGone(t *testing.T) {
	resource := v1.Resource("requeststates")
	cases := map[string]struct {
		reason string
		err    error
		failed bool
	}{
		"not found": {reason: "somebody else was faster", err: apierrors.NewNotFound(resource, "r")},
		"conflict":  {reason: "that is another object", err: apierrors.NewConflict(resource, "r", errors.New("boom"))},
		"forbidden": {reason: "it is still there", err: apierrors.NewForbidden(resource, "r", errors.New("boom")), failed: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, request("r", flow.Job2, flow.Completed))
				r.Request, r.Cleanup = "r", true
				r.client.PrependReactor("delete", "requeststates", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
				if err := r.Run(t.Context()); (err != nil) != c.failed {
					t.Errorf("got %v, as %s", err, c.reason)
				}
			})
		})
	}
}
