// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// view asks for a ViewWork and returns the answer.
func (s *tests) view(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	// To validate what the hub validates, kubectl would read all of OpenAPI anew each time.
	out, err := s.Hub.As(testbed.Alice, testbed.Platform).RunInput(t.Context(), strings.NewReader(testbed.ViewManifest("spoke1", spec)), "create", "-f", "-", "-o", "json", "--validate=ignore")
	if err != nil {
		t.Fatal(err)
	}
	answer := &unstructured.Unstructured{}
	if err := answer.UnmarshalJSON([]byte(out)); err != nil {
		t.Fatal(err)
	}
	return answer
}

// itemCounts maps each cluster of an answer to its number of items, or to -1
// where there is an error.
func itemCounts(answer *unstructured.Unstructured) map[string]int64 {
	counts := map[string]int64{}
	list, _, _ := unstructured.NestedSlice(answer.Object, "status", "clusters")
	for _, item := range list {
		c, ok := item.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(c, "cluster")
		counts[name], _, _ = unstructured.NestedInt64(c, "itemCount")
		if _, failed := c["error"]; failed {
			counts[name] = -1
		}
	}
	return counts
}

func (s *tests) viewIsLive(t *testing.T) {
	// What an earlier run left would be counted, too.
	s.Spoke().Kubectl(t, "delete", "namespace", "views", "--ignore-not-found", "--timeout=180s")
	s.Spoke().Kubectl(t, "create", "namespace", "views")
	for i, name := range []string{"configmaps", "configmap", "ConfigMap", "cm"} {
		s.Spoke().Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: seen-%d, namespace: views, labels: {seen: 'yes'}}}", i))
		// The very next answer has what was just made.
		answer := s.view(t, fmt.Sprintf(`{scope: {resource: %s, namespace: views, labelSelector: {matchLabels: {seen: "yes"}}}}`, name))
		if got := itemCounts(answer)["spoke1"]; got != int64(i+1) {
			t.Errorf("%s: got %d objects, want %d", name, got, i+1)
		}
	}
	forms := map[string]string{
		"deployments.apps":    `{scope: {resource: deployments.apps, allNamespaces: true}, output: Table}`,
		"deployments.v1.apps": `{scope: {resource: deployments.v1.apps, allNamespaces: true}, output: Metadata}`,
		"one by name":         `{scope: {resource: cm, namespace: views, name: seen-1}}`,
		"by field":            `{scope: {resource: pods, allNamespaces: true, fieldSelector: "status.phase=Running"}, output: Table}`,
		"cluster-scoped":      `{scope: {resource: namespaces}, output: Metadata}`,
	}
	for name, spec := range forms {
		if got := itemCounts(s.view(t, spec))["spoke1"]; got < 1 {
			t.Errorf("%s: got %d objects", name, got)
		}
	}
}

func (s *tests) viewOfMany(t *testing.T) {
	for _, spoke := range s.Spokes {
		s.Hub.Kubectl(t, "label", "managedcluster", spoke.Name, "fleet=e2e", "--overwrite")
	}
	many := `{clusterSelector: {matchLabels: {fleet: e2e}}, scope: {resource: namespaces}, output: Metadata}`
	var counts map[string]int64
	var unseen int64 // what other steps left: clusters beyond the selector count, too
	testbed.Until(t, "answers of both clusters", testbed.Settle, func(context.Context) error {
		answer := s.view(t, many)
		counts, unseen = itemCounts(answer), forbiddenCount(answer)
		if len(counts) != 2 {
			return fmt.Errorf("got %v", counts)
		}
		return nil
	})
	if counts["spoke1"] < 4 || counts["spoke2"] < 4 {
		t.Errorf("got %v", counts)
	}
	s.Hub.Kubectl(t, "delete", "rolebinding", testbed.Platform, "-n", "spoke2")
	testbed.Until(t, "an answer without the cluster whose right was taken", testbed.Settle, func(context.Context) error {
		answer := s.view(t, many)
		forbidden := forbiddenCount(answer)
		partial, _, _ := unstructured.NestedBool(answer.Object, "status", "summary", "partial")
		if counts := itemCounts(answer); len(counts) != 1 || forbidden != unseen+1 || !partial {
			return fmt.Errorf("got %v, forbidden %d, before %d, partial %t", counts, forbidden, unseen, partial)
		}
		return nil
	})
	s.LetPlatformView(t, "spoke2")
}

func forbiddenCount(view *unstructured.Unstructured) int64 {
	n, _, _ := unstructured.NestedInt64(view.Object, "status", "summary", "forbidden")
	return n
}

func (s *tests) proxyActsAsCaller(t *testing.T) {
	ctl := s.Hub.As(testbed.Alice, testbed.Platform)
	out, err := ctl.Run(t.Context(), "get", "--raw", testbed.ProxyPath+"/api/v1/namespaces")
	if err != nil || !strings.Contains(out, `"kube-system"`) {
		t.Errorf("namespaces through the proxy: %v: %.200s", err, out)
	}
	review := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	out, err = ctl.RunInput(t.Context(), strings.NewReader(review), "create", "--raw", testbed.ProxyPath+"/apis/authentication.k8s.io/v1/selfsubjectreviews", "-f", "-")
	if err != nil || !strings.Contains(out, `"hub:alice"`) || !strings.Contains(out, `"hub:platform"`) {
		t.Errorf("the spoke sees the caller under the hub's prefix: %v: %s", err, out)
	}
	if strings.Contains(out, "masters") {
		t.Errorf("a system group came through: %s", out)
	}
	testbed.Refused(t, "what the spoke does not grant is refused by the spoke", ctl, "",
		[]string{"get", "--raw", testbed.ProxyPath + "/api/v1/namespaces/kube-system/secrets"}, "hub:alice")
	testbed.Refused(t, "the admin of the hub is nobody in the spoke", s.Hub.Command, "",
		[]string{"get", "--raw", testbed.ProxyPath + "/api/v1/namespaces"}, "orbidden")
	testbed.Refused(t, "without a right on the hub nothing is forwarded", s.Hub.As("mallory"), "",
		[]string{"get", "--raw", testbed.ProxyPath + "/version"}, "mallory", "clusters")
}

func (s *tests) watchOutlivesAMinute(t *testing.T) {
	const atLeast, namespace = 70 * time.Second, "watched"
	s.Spoke().Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}")
	// What an earlier run left would be shown at once.
	s.Spoke().Kubectl(t, "delete", "configmap", "late", "-n", namespace, "--ignore-not-found")
	ctx, cancel := context.WithTimeout(t.Context(), atLeast+testbed.Settle)
	defer cancel()
	cmd := s.Hub.As(testbed.Alice, testbed.Platform).Cmd(ctx, "get", "--raw", testbed.ProxyPath+"/api/v1/namespaces/"+namespace+"/configmaps?watch=true&timeoutSeconds=600&resourceVersion=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	late := time.AfterFunc(atLeast, func() {
		_, err := s.Spoke().Command.Run(ctx, "create", "configmap", "late", "-n", namespace)
		made <- err
	})
	found := false
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for !found && lines.Scan() {
		found = strings.Contains(lines.Text(), `"name":"late"`)
	}
	if !late.Stop() {
		if err := <-made; err != nil {
			t.Error(err)
		}
	}
	cancel()
	_ = cmd.Wait() // ended by the cancel above
	if !found {
		t.Errorf("the watch ended before it showed what was made after %s", atLeast)
	}
}

func (s *tests) badInput(t *testing.T) {
	ctl := s.Hub.As(testbed.Alice, testbed.Platform)
	create := []string{"create", "-f", "-"}
	// What is wrong with a question the hub says, the rest its cluster.
	for name, tc := range map[string]struct {
		spec  string
		words []string
	}{
		"a malformed selector":   {`{scope: {resource: pods, allNamespaces: true, labelSelector: {matchExpressions: [{key: a, operator: Near}]}}}`, []string{"labelSelector", "Near"}},
		"an unknown resource":    {`{scope: {resource: unicorns, allNamespaces: true}}`, []string{"unicorns"}},
		"what the spoke forbids": {`{scope: {resource: secrets, namespace: kube-system}}`, []string{"secrets", "hub:alice"}},
	} {
		testbed.Refused(t, name, ctl, testbed.ViewManifest("spoke1", tc.spec), create, tc.words...)
	}
	testbed.Refused(t, "a user without the right", s.Hub.As("mallory"), testbed.ViewManifest("spoke1", `{scope: {resource: pods, allNamespaces: true}}`), create, "mallory", "viewworks")
	testbed.Refused(t, "an unknown cluster", ctl, "", []string{"get", "--raw", "/apis/live.spokelet.io/v1alpha1/clusters/nowhere/proxy/version"}, "nowhere")
	// Slashes that are doubled never get here: the hub's own API server folds them.
	for _, path := range []string{"/api/v1/namespaces/views/..%2fkube-system/secrets", "/api/v1/namespaces/%2e%2e/secrets", "/api/v1;x/namespaces"} {
		testbed.Refused(t, "a path with tricks", ctl, "", []string{"get", "--raw", testbed.ProxyPath + path})
	}
}
