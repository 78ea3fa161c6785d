// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func accept(record *clusterv1.ManagedCluster) { record.Spec.HubAcceptsClient = true }

// waiting enrols a cluster that is not accepted, and returns when the call waits.
func waiting(t *testing.T, h *harness) (answer <-chan error) {
	t.Helper()
	attempt := request(t, newKey(t), store1, h.issueToken(store1))
	answers := make(chan error, 1)
	go func() {
		_, err := h.Enroller().Enroll(t.Context(), attempt)
		answers <- err
	}()
	synctest.Wait()
	return answers
}

func TestEnrollWaitsForAcceptance(t *testing.T) {
	t.Run("Acceptance answers the waiting call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, managedCluster(unaccepted))
			answer := waiting(t, h)
			if h.get(store1).Annotations[AnnotationKubeSystemUID] != "" {
				t.Error("a cluster that is not accepted was pinned")
			}
			// A change that is no acceptance leaves it waiting.
			h.change(store1, func(r *clusterv1.ManagedCluster) { r.Labels = map[string]string{"a": "b"} })
			synctest.Wait()
			select {
			case err := <-answer:
				t.Fatalf("the call ended without acceptance: %v", err)
			default:
			}
			h.change(store1, accept)
			if err := <-answer; err != nil {
				t.Error(err)
			}
		})
	})

	t.Run("Without acceptance it ends after five minutes, and can be asked again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, managedCluster(unaccepted))
			attempt := request(t, newKey(t), store1, h.issueToken(store1))
			start := time.Now()
			_, err := h.Enroller().Enroll(t.Context(), attempt)
			if status.Code(err) != codes.FailedPrecondition || time.Since(start) != 5*time.Minute {
				t.Errorf("after %s: %v, want %v after 5m", time.Since(start), err, codes.FailedPrecondition)
			}
			h.change(store1, accept)
			if _, err := h.Enroller().Enroll(t.Context(), attempt); err != nil {
				t.Error(err)
			}
		})
	})

	t.Run("A second call of the same agent takes the place of the first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, managedCluster(unaccepted))
			attempt := request(t, newKey(t), store1, h.issueToken(store1))
			first, second := make(chan error, 1), make(chan error, 1)
			for _, answer := range []chan error{first, second} {
				go func() {
					_, err := h.Enroller().Enroll(t.Context(), attempt)
					answer <- err
				}()
				synctest.Wait()
			}
			if err := <-first; status.Code(err) != codes.Aborted {
				t.Errorf("the first call: %v, want %v", err, codes.Aborted)
			}
			h.change(store1, accept)
			if err := <-second; err != nil {
				t.Errorf("the second call: %v", err)
			}
			if waiting := len(h.gate.waiters.waiting); waiting != 0 {
				t.Errorf("%d waiters are left", waiting)
			}
		})
	})

	t.Run("Deletion ends it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, managedCluster(unaccepted, func(r *clusterv1.ManagedCluster) { r.Finalizers = nil }))
			answer := waiting(t, h)
			record := h.get(store1)
			if err := h.client.Delete(t.Context(), record, client.Preconditions{}); err != nil {
				t.Fatal(err)
			}
			h.gate.eventHandler().OnDelete(record)
			if err := <-answer; status.Code(err) != codes.PermissionDenied {
				t.Errorf("Enroll: %v, want %v", err, codes.PermissionDenied)
			}
		})
	})
}

func TestEnrollRefusesTokenWithdrawnWhileWaiting(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		withdraw func(*testing.T, *harness)
		counted  string
	}{
		"deleted": {
			reason:  "nobody may use it any more",
			counted: "no_token",
			withdraw: func(t *testing.T, h *harness) {
				if err := h.reconciler.deleteToken(t.Context(), store1); err != nil {
					t.Fatal(err)
				}
			},
		},
		"replaced by another": {
			reason:  "whoever asked for another may think that this one was stolen",
			counted: "forged_token",
			withdraw: func(t *testing.T, h *harness) {
				if err := h.reconciler.deleteToken(t.Context(), store1); err != nil {
					t.Fatal(err)
				}
				h.issueToken(store1)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, managedCluster(unaccepted))
				answer := waiting(t, h)
				tc.withdraw(t, h)
				h.change(store1, accept)
				if err := <-answer; status.Code(err) != codes.PermissionDenied {
					t.Errorf("%s: %v, want %v", tc.reason, err, codes.PermissionDenied)
				}
				if h.refused(tc.counted) != 1 {
					t.Errorf("%s: reason %q is not counted", tc.reason, tc.counted)
				}
				if h.get(store1).Annotations[AnnotationKubeSystemUID] != "" {
					t.Errorf("%s: the cluster was pinned to where the token came from", tc.reason)
				}
			})
		})
	}
}
