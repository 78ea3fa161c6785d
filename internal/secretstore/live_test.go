// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// liveSecrets are those of a new namespace of a real API server.
func liveSecrets(t *testing.T) typedcorev1.SecretInterface {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_TEST_KUBECONFIG")
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return kube.CoreV1().Secrets(livetest.Namespace(t, kube, "base-"))
}

func liveStart(t *testing.T, secrets typedcorev1.SecretInterface) *process {
	t.Helper()
	return startWith(t, Config{Name: "test", Secrets: secrets, Logger: logr.Discard(), FlushTimeout: livetest.Patience})
}

func listed(t *testing.T, secrets typedcorev1.SecretInterface) []corev1.Secret {
	t.Helper()
	list, err := secrets.List(t.Context(), metav1.ListOptions{LabelSelector: selector("test")})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// Ten times as many are in TestManyRecordsNeedFewWritesAndSegments, without a network.
func TestLiveManyRecordsAreReadBack(t *testing.T) {
	const records = 1000
	secrets := liveSecrets(t)
	p := liveStart(t, secrets)
	began := time.Now()
	for _, durable := range fill(t, p, records, true) {
		<-durable
	}
	t.Logf("%d records were durable after %s, in %d Secrets", records, time.Since(began), len(listed(t, secrets)))
	random, changes := rand.New(rand.NewPCG(4, 1)), 300
	began = time.Now()
	for range changes {
		p.put(t, keyOf(random.IntN(records)), string(usualValue(random)))
	}
	t.Logf("a single change took %s", time.Since(began)/time.Duration(changes))
	for i := range records / 2 {
		p.Delete(keyOf(i))
	}
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	want := allOf(p.Store)
	began = time.Now()
	next := liveStart(t, secrets)
	t.Logf("%d records were read in %s", len(want), time.Since(began))
	if diff := cmp.Diff(want, allOf(next.Store)); diff != "" {
		t.Errorf("stored (-want +got):\n%.500s", diff)
	}
	for _, key := range next.Keys() {
		next.Delete(key)
	}
	livetest.Eventually(t, "nothing is left", func() bool { return len(listed(t, secrets)) == 0 })
}

func TestLiveLargestRecordFits(t *testing.T) {
	secrets := liveSecrets(t)
	p := liveStart(t, secrets)
	value := string(noise(maxStored - 1<<10))
	p.put(t, "large", value)
	p.put(t, "text", strings.Repeat("text", 1<<20))
	if got := allOf(liveStart(t, secrets).Store); got["large"] != value || len(got["text"]) != 4<<20 {
		t.Errorf("%d and %d bytes were stored", len(got["large"]), len(got["text"]))
	}
}
