// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// carol reaches scripts, and may do nothing else.
const carol = "carol"

// carolsRights are on the hub to reach clusters, and in them to reach Services.
const carolsRights = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: carol}, rules: [
  {apiGroups: [live.spokelet.io], resources: [clusters, clusters/proxy], verbs: [get, create]},
  {apiGroups: [""], resources: [services/proxy], verbs: [get, create]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: carol},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: carol},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "%s"}]}
`

func (s *tests) grantCarol(t *testing.T) {
	s.Hub.Apply(t, fmt.Sprintf(carolsRights, carol))
	for _, spoke := range s.Spokes {
		spoke.Apply(t, fmt.Sprintf(carolsRights, "hub:"+carol))
	}
}

// path is that of a script in a spoke, on the hub, with a slash at its end.
func (s *tests) path(spoke *testbed.Site, script string) string {
	service := "worker-" + strings.ReplaceAll(script, "_", "-")
	proxy := strings.Replace(testbed.ProxyPath, "spoke1", spoke.Name, 1)
	return proxy + "/api/v1/namespaces/" + s.inSpoke() + "/services/" + service + ":http/proxy/"
}

// answer is what a script says, as far as it is what the script decides.
type answer struct {
	Code               int
	Type, Script, Body string
}

// request is one to a script. The path has no slash at its beginning.
type request struct{ method, path, body string }

// send sends a request to a script whose own path is at a URL.
func (r request) send(ctx context.Context, client *http.Client, url string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, testbed.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, url+r.path, strings.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{Code: resp.StatusCode, Type: resp.Header.Get("Content-Type"), Script: resp.Header.Get("X-Script"), Body: string(body)}, err
}

// asks sends a request to a script in a spoke, through the hub.
func (s *tests) asks(ctx context.Context, spoke *testbed.Site, script string, r request) (answer, error) {
	return r.send(ctx, s.carol, s.Hub.REST.Host+s.path(spoke, script))
}

// checkServed returns nil if a script answers so in a spoke.
func (s *tests) checkServed(ctx context.Context, spoke *testbed.Site, script, want string) error {
	got, err := s.asks(ctx, spoke, script, request{method: http.MethodGet})
	if err == nil && (got.Code != http.StatusOK || got.Body != want) {
		err = fmt.Errorf("answers %d, %.400q, want %q", got.Code, got.Body, want)
	}
	return err
}

// waitForServedIn waits until a script answers so in a cluster.
func (s *tests) waitForServedIn(t *testing.T, spoke *testbed.Site, script, want string) {
	t.Helper()
	testbed.Until(t, fmt.Sprintf("%s of %s answers in %s", script, s.account, spoke.Name), testbed.Settle, func(ctx context.Context) error {
		return s.checkServed(ctx, spoke, script, want)
	})
}

// waitForServed waits until a script answers alike in all clusters.
func (s *tests) waitForServed(t *testing.T, script, want string) {
	t.Helper()
	for _, spoke := range s.Spokes {
		s.waitForServedIn(t, spoke, script, want)
	}
}

// waitForHello is waitForServed for the document's script, which answers so by now.
func (s *tests) waitForHello(t *testing.T, want string) {
	t.Helper()
	s.hello = want
	s.waitForServed(t, "hello", want)
}

// checkStillServedIn checks that a script goes on answering so in a cluster.
func (s *tests) checkStillServedIn(t *testing.T, spoke *testbed.Site, script, want string) {
	t.Helper()
	if err := s.checkServed(t.Context(), spoke, script, want); err != nil {
		t.Errorf("%s: %v", spoke.Name, err)
	}
}

// checkStillServed checks that a script goes on answering alike in all clusters.
func (s *tests) checkStillServed(t *testing.T, script, want string) {
	t.Helper()
	for _, spoke := range s.Spokes {
		s.checkStillServedIn(t, spoke, script, want)
	}
}

// checkStillHello is checkStillServed for the document's script.
func (s *tests) checkStillHello(t *testing.T) {
	t.Helper()
	s.checkStillServed(t, "hello", s.hello)
}

// checkKeepsAnswering asks the document's script in all clusters, again and again, until the
// function that it returns is called. The test fails if it ever answers otherwise than now.
func (s *tests) checkKeepsAnswering(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, spoke := range s.Spokes {
		group.Go(func() {
			again := time.NewTicker(50 * time.Millisecond)
			defer again.Stop()
			for asked := 1; ; asked++ {
				err := s.checkServed(ctx, spoke, "hello", s.hello)
				if ctx.Err() != nil {
					t.Logf("%s: it was asked %d times", spoke.Name, asked)
					return
				}
				if err != nil {
					t.Errorf("%s: asked for the %dth time, it %v", spoke.Name, asked, err)
				}
				select {
				case <-again.C:
				case <-ctx.Done():
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(stop)
	return stop
}
