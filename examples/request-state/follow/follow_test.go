// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/ktesting"

	v1 "github.com/spokelet/spokelet/examples/request-state/api/v1"
	"github.com/spokelet/spokelet/examples/request-state/generated/clientset/versioned/fake"
)

var errBoom = errors.New("boom")

func request(namespace, name string) *v1.RequestState {
	return &v1.RequestState{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func TestEachChangeInTheNamespaceIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(request("n", "there"), request("other", "foreign"))
		var handled []string
		f := Follower{Client: client, Namespace: "n", Handlers: 1, Log: ktesting.NewLogger(t, ktesting.DefaultConfig), Handle: func(_ context.Context, name string) (bool, error) {
			handled = append(handled, name)
			return false, nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { result <- f.Run(ctx) }()
		check := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, handled); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			handled = nil
		}
		check("what is there at the start", "there")
		requests := client.ComV1().RequestStates("n")
		_, _ = requests.Create(ctx, request("n", "new"), metav1.CreateOptions{})
		check("what is added", "new")
		_, _ = requests.Update(ctx, &v1.RequestState{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "new", Labels: map[string]string{"a": "b"}}}, metav1.UpdateOptions{})
		check("what is changed", "new")
		_, _ = client.ComV1().RequestStates("other").Create(ctx, request("other", "new"), metav1.CreateOptions{})
		check("what is elsewhere")
		_ = requests.Delete(ctx, "there", metav1.DeleteOptions{})
		check("what is deleted", "there")
		time.Sleep(24 * time.Hour)
		check("what does not change")
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAHandlerThatFailsIsCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		f := Follower{Client: fake.NewSimpleClientset(), Namespace: "n", Name: "gone", Handlers: 1, Log: ktesting.NewLogger(t, ktesting.DefaultConfig), Handle: func(context.Context, string) (bool, error) {
			calls++
			return calls == 12, errBoom
		}}
		begin := time.Now()
		if err := f.Run(t.Context()); !errors.Is(err, errBoom) {
			t.Errorf("got %v", err)
		}
		// 50 ms and doubled up to 6.4 s, then three times 10 s.
		if took := time.Since(begin); took != 12750*time.Millisecond+3*lastRetry {
			t.Errorf("took %s", took)
		}
	})
}

func TestTheFirstToBeDoneEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(request("n", "one"), request("n", "two"), request("n", "waits"))
		f := Follower{Client: client, Namespace: "n", Handlers: 3, Log: ktesting.NewLogger(t, ktesting.DefaultConfig), Handle: func(ctx context.Context, name string) (bool, error) {
			if name == "waits" {
				<-ctx.Done()
				return false, ctx.Err()
			}
			return true, nil
		}}
		if err := f.Run(t.Context()); err != nil {
			t.Errorf("got %v", err)
		}
	})
}
