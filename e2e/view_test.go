// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// alice is a user of the hub, and a member of platform.
	alice    = "alice"
	platform = "platform"

	proxyPath = "/apis/live.spokelet.io/v1alpha1/clusters/spoke1/proxy"
)

// view asks for a ViewWork and returns the answer.
func (s *suite) view(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	out, err := s.hub.as(alice, platform).RunInput(t.Context(), strings.NewReader(viewManifest(spec)), "create", "-f", "-", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	answer := &unstructured.Unstructured{}
	if err := answer.UnmarshalJSON([]byte(out)); err != nil {
		t.Fatal(err)
	}
	return answer
}

func viewManifest(spec string) string {
	return "apiVersion: live.spokelet.io/v1alpha1\nkind: ViewWork\nmetadata: {generateName: v-, namespace: spoke1}\nspec: " + spec + "\n"
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

func (s *suite) viewIsLive(t *testing.T) {
	for _, spoke := range s.spokes {
		spoke.kubectl(t, "create", "clusterrolebinding", "hub-platform", "--clusterrole=view", "--group=hub:"+platform)
		s.hub.kubectl(t, "create", "rolebinding", platform, "-n", spoke.Name, "--clusterrole=view", "--group="+platform)
	}
	s.hub.kubectl(t, "create", "clusterrole", "spokelet-proxy", "--verb=get,list,watch,create", "--resource=clusters.live.spokelet.io,clusters.live.spokelet.io/proxy")
	s.hub.kubectl(t, "create", "clusterrolebinding", "spokelet-proxy", "--clusterrole=spokelet-proxy", "--group="+platform)
	s.untilAliceMay(t)
	s.spoke().kubectl(t, "create", "namespace", "views")
	for i := range 3 {
		s.spoke().kubectl(t, "create", "configmap", fmt.Sprintf("seen-%d", i), "-n", "views", "--from-literal=k=v")
		s.spoke().kubectl(t, "label", "configmap", fmt.Sprintf("seen-%d", i), "-n", "views", "seen=yes")
		// The very next answer has what was just made.
		for _, name := range []string{"configmaps", "configmap", "ConfigMap", "cm"} {
			answer := s.view(t, fmt.Sprintf(`{scope: {resource: %s, namespace: views, labelSelector: {matchLabels: {seen: "yes"}}}}`, name))
			if got := itemCounts(answer)["spoke1"]; got != int64(i+1) {
				t.Errorf("%s: got %d objects, want %d", name, got, i+1)
			}
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

// untilAliceMay waits until her rights are known: API servers judge by caches that
// new ones reach a moment later.
func (s *suite) untilAliceMay(t *testing.T) {
	t.Helper()
	ctl := s.hub.as(alice, platform)
	for _, spoke := range s.spokes {
		until(t, "a view of "+spoke.Name+" for alice", settle, func(ctx context.Context) error {
			view := strings.Replace(viewManifest(`{scope: {resource: namespaces}, output: Metadata}`), "namespace: spoke1", "namespace: "+spoke.Name, 1)
			_, err := ctl.RunInput(ctx, strings.NewReader(view), "create", "-f", "-")
			return err
		})
	}
	until(t, "the proxy for alice", settle, func(ctx context.Context) error {
		_, err := ctl.Run(ctx, "get", "--raw", proxyPath+"/api/v1/namespaces")
		return err
	})
}

func (s *suite) viewOfMany(t *testing.T) {
	for _, spoke := range s.spokes {
		s.hub.kubectl(t, "label", "managedcluster", spoke.Name, "fleet=e2e", "--overwrite")
	}
	many := `{clusterSelector: {matchLabels: {fleet: e2e}}, scope: {resource: namespaces}, output: Metadata}`
	var counts map[string]int64
	var unseen int64 // what other steps left: clusters beyond the selector count, too
	until(t, "answers of both clusters", settle, func(context.Context) error {
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
	s.hub.kubectl(t, "delete", "rolebinding", platform, "-n", "spoke2")
	until(t, "an answer without the cluster whose right was taken", settle, func(context.Context) error {
		answer := s.view(t, many)
		forbidden := forbiddenCount(answer)
		partial, _, _ := unstructured.NestedBool(answer.Object, "status", "summary", "partial")
		if counts := itemCounts(answer); len(counts) != 1 || forbidden != unseen+1 || !partial {
			return fmt.Errorf("got %v, forbidden %d, before %d, partial %t", counts, forbidden, unseen, partial)
		}
		return nil
	})
	s.hub.kubectl(t, "create", "rolebinding", platform, "-n", "spoke2", "--clusterrole=view", "--group="+platform)
}

func forbiddenCount(view *unstructured.Unstructured) int64 {
	n, _, _ := unstructured.NestedInt64(view.Object, "status", "summary", "forbidden")
	return n
}

func (s *suite) proxyActsAsCaller(t *testing.T) {
	ctl := s.hub.as(alice, platform)
	out, err := ctl.Run(t.Context(), "get", "--raw", proxyPath+"/api/v1/namespaces")
	if err != nil || !strings.Contains(out, `"kube-system"`) {
		t.Errorf("namespaces through the proxy: %v: %.200s", err, out)
	}
	review := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	out, err = ctl.RunInput(t.Context(), strings.NewReader(review), "create", "--raw", proxyPath+"/apis/authentication.k8s.io/v1/selfsubjectreviews", "-f", "-")
	if err != nil || !strings.Contains(out, `"hub:alice"`) || !strings.Contains(out, `"hub:platform"`) {
		t.Errorf("the spoke sees the caller under the hub's prefix: %v: %s", err, out)
	}
	if strings.Contains(out, "masters") {
		t.Errorf("a system group came through: %s", out)
	}
	refused(t, "what the spoke does not grant is refused by the spoke", ctl, "",
		[]string{"get", "--raw", proxyPath + "/api/v1/namespaces/kube-system/secrets"}, "hub:alice")
	refused(t, "the admin of the hub is nobody in the spoke", s.hub.ctl, "",
		[]string{"get", "--raw", proxyPath + "/api/v1/namespaces"}, "orbidden")
	refused(t, "without a right on the hub nothing is forwarded", s.hub.as("mallory"), "",
		[]string{"get", "--raw", proxyPath + "/version"}, "mallory", "clusters")
}

func (s *suite) watchOutlivesAMinute(t *testing.T) {
	const atLeast = 70 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), atLeast+settle)
	defer cancel()
	cmd := s.hub.as(alice, platform).Cmd(ctx, "get", "--raw", proxyPath+"/api/v1/namespaces/views/configmaps?watch=true&timeoutSeconds=600&resourceVersion=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	late := time.AfterFunc(atLeast, func() {
		_, err := s.spoke().ctl.Run(ctx, "create", "configmap", "late", "-n", "views")
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

func (s *suite) badInput(t *testing.T) {
	ctl := s.hub.as(alice, platform)
	create := []string{"create", "-f", "-"}
	cases := map[string]struct {
		spec  string
		words []string
	}{
		"an unknown resource":     {`{scope: {resource: unicorns, allNamespaces: true}}`, []string{"unicorns"}},
		"a malformed selector":    {`{scope: {resource: pods, allNamespaces: true, labelSelector: {matchExpressions: [{key: a, operator: Near}]}}}`, []string{"labelSelector", "Near"}},
		"a malformed field":       {`{scope: {resource: pods, allNamespaces: true, fieldSelector: "a=b=c=="}}`, []string{"fieldSelector"}},
		"no resource":             {`{scope: {namespace: views, resource: ""}}`, []string{"resource"}},
		"an unknown output":       {`{scope: {resource: pods, allNamespaces: true}, output: Poem}`, []string{"output", "Poem"}},
		"what the spoke forbids":  {`{scope: {resource: secrets, namespace: kube-system}}`, []string{"secrets", "hub:alice"}},
		"a namespace and all":     {`{scope: {resource: pods, namespace: views, allNamespaces: true}}`, []string{"allNamespaces"}},
		"an object that is not":   {`{scope: {resource: cm, namespace: views, name: nowhere}}`, []string{"nowhere"}},
		"a resource of no group":  {`{scope: {resource: pods.example.com, allNamespaces: true}}`, []string{"pods.example.com"}},
		"a selector with no name": {`{scope: {resource: cm, namespace: views, name: seen-1, limit: 5}}`, []string{"limit"}},
	}
	for name, tc := range cases {
		refused(t, name, ctl, viewManifest(tc.spec), create, tc.words...)
	}
	refused(t, "a user without the right", s.hub.as("mallory"), viewManifest(`{scope: {resource: pods, allNamespaces: true}}`), create, "mallory", "viewworks")
	refused(t, "an unknown cluster", ctl, "", []string{"get", "--raw", "/apis/live.spokelet.io/v1alpha1/clusters/nowhere/proxy/version"}, "nowhere")
	// Slashes that are doubled never get here: the hub's own API server folds them.
	for _, path := range []string{"/api/v1/namespaces/views/..%2fkube-system/secrets", "/api/v1/namespaces/%2e%2e/secrets", "/api/v1;x/namespaces"} {
		refused(t, "a path with tricks", ctl, "", []string{"get", "--raw", proxyPath + path})
	}
}
