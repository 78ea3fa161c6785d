// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"

	v1 "github.com/spokelet/spokelet/examples/request-state/api/v1"
	"github.com/spokelet/spokelet/examples/request-state/flow"
	"github.com/spokelet/spokelet/examples/request-state/generated/clientset/versioned/fake"
)

const delay = 2 * time.Second

func request(job, state string) *v1.RequestState {
	return &v1.RequestState{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "r", UID: "1"},
		Spec:       v1.RequestStateSpec{RequestUID: "r", Job: job, State: state},
	}
}

// run runs a worker for a time, and returns what it said.
func run(t *testing.T, client *fake.Clientset, time time.Duration) string {
	t.Helper()
	log := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, cancel := context.WithTimeout(t.Context(), time)
	defer cancel()
	w := Worker{Client: client, Namespace: "n", Delay: delay, Log: log}
	if err := w.Run(ctx); err != nil {
		t.Errorf("the end of the context is an error: %v", err)
	}
	return log.GetSink().(ktesting.Underlier).GetBuffer().String()
}

func TestJobsAreExecutedAndAllElseIsLeftAlone(t *testing.T) {
	deleted := request(flow.Job1, flow.Requested)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"a/b"}
	cases := map[string]struct {
		reason  string
		request *v1.RequestState
		time    time.Duration // that the step takes
		want    flow.Step
		log     string
		updates int
	}{
		"requested": {
			reason: "it is started, and completed", request: request(flow.Job1, flow.Requested),
			time: 2 * delay, want: flow.Step{Job: flow.Job1, State: flow.Completed}, updates: 4,
		},
		"started": {
			reason: "a worker goes on where another one ended", request: request(flow.Job2, flow.Started),
			time: delay, want: flow.Step{Job: flow.Job2, State: flow.Completed}, updates: 2,
		},
		"completed": {
			reason: "the director is to act", request: request(flow.Job1, flow.Completed),
			want: flow.Step{Job: flow.Job1, State: flow.Completed},
		},
		"unknown job": {
			reason: "it says so", request: request("JOB3", flow.Requested),
			want: flow.Step{Job: "JOB3", State: flow.Requested}, log: `unknown job "JOB3"`,
		},
		"unknown state": {
			reason: "it says so", request: request(flow.Job1, "PAUSED"),
			want: flow.Step{Job: flow.Job1, State: "PAUSED"}, log: `unknown state "PAUSED"`,
		},
		"being deleted": {
			reason: "nobody waits for it", request: deleted,
			want: flow.First,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset(c.request.DeepCopy())
				said := run(t, client, c.time+time.Millisecond)
				r, err := client.ComV1().RequestStates("n").Get(t.Context(), "r", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if got := flow.At(r); got != c.want {
					t.Errorf("it is in %s after %s, want %s, as %s", got, c.time, c.want, c.reason)
				}
				if !strings.Contains(strings.ReplaceAll(said, `\`, ""), c.log) {
					t.Errorf("it says:\n%s\nwant %s", said, c.log)
				}
				updates := 0
				for _, action := range client.Actions() {
					if action.GetVerb() == "update" {
						updates++
					}
				}
				if updates != c.updates {
					t.Errorf("%d updates, want %d", updates, c.updates)
				}
			})
		})
	}
}

func TestARequestThatIsDeletedMeanwhileIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(request(flow.Job1, flow.Requested))
		time.AfterFunc(delay/2, func() {
			_ = client.ComV1().RequestStates("n").Delete(t.Context(), "r", metav1.DeleteOptions{})
		})
		if said := run(t, client, time.Hour); !strings.Contains(said, "Deleted while it was executed") || strings.Contains(said, "Trying again") {
			t.Errorf("it says:\n%s", said)
		}
	})
}

func TestAFailureIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(request(flow.Job1, flow.Started))
		failures := 3
		client.PrependReactor("update", "requeststates", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, context.DeadlineExceeded
		})
		run(t, client, time.Minute)
		r, err := client.ComV1().RequestStates("n").Get(t.Context(), "r", metav1.GetOptions{})
		if err != nil || r.Spec.State != flow.Completed {
			t.Errorf("got %v, %v", r, err)
		}
	})
}
