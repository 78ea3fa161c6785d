// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wrangler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

// newEchoProject is a script that says what it is asked, and throws when it is told to.
func (s *tests) newEchoProject(t *testing.T) *project {
	t.Helper()
	return s.project(t, "kept", "", map[string]string{"src/index.js": `export default { async fetch(request) {
  console.log("asked", request.method, { version: "v1" });
  if (new URL(request.url).searchParams.has("throw")) throw new Error("thrown on purpose");
  return new Response("kept");
} };
`})
}

// testRejected: the words are workerd's.
func (s *tests) testRejected(t *testing.T) {
	p := s.newEchoProject(t)
	p.run(t, "deploy")
	p.waitForAnswer(t, "kept")
	p.write(t, map[string]string{"src/index.js": "export default { fetch() { return new Response('no'); } };\nthrow new Error('never to be loaded');\n"})
	p.expectFailure(t, p.as, []string{"never to be loaded", "10021"}, "deploy")
	p.checkStillAnswers(t, "kept")
}

// testUnsupported: one of the products that the API refuses by their names.
func (s *tests) testUnsupported(t *testing.T) {
	for _, settings := range []string{
		"[[kv_namespaces]]\nbinding = \"CACHE\"\nid = \"0123456789abcdef0123456789abcdef\"",
		"[[kv_namespaces]]\nbinding = \"CACHE\"", // wrangler would make it
		"[[queues.producers]]\nbinding = \"CACHE\"",
	} {
		p := s.project(t, "wants", settings, saying("'x'"))
		p.expectFailure(t, p.as, []string{"CACHE", "not supported"}, "deploy")
	}
	if left := s.Hub.Kubectl(t, "get", "workerdeployments", "-n", s.team, "-o", "name"); strings.Contains(left, "wants") {
		t.Errorf("there is %s", left)
	}
}

// testRefused: the hub reviews the token, and the rights of who has it.
func (s *tests) testRefused(t *testing.T) {
	p := s.project(t, "mine", "", saying("'mine'"))
	p.expectFailure(t, s.with(t.TempDir(), s.token(t, "developer")), []string{"Invalid access token"}, "deploy") // it is for the API server
	p.expectFailure(t, s.with(t.TempDir(), s.token(t, "viewer", forAPI)), []string{"Unauthorized", "may not"}, "deploy")
}

func (s *tests) listStored(t *testing.T, prefix string) []string {
	t.Helper()
	keys, err := s.store.Keys(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// testConcurrentDeploys: one of them is served in the end, and the other one's developer knows it.
func (s *tests) testConcurrentDeploys(t *testing.T) {
	s.project(t, "twice", "", saying("'zero'")).run(t, "deploy")
	type end struct {
		text string
		err  error
	}
	ends := make(chan end, 2)
	for _, text := range []string{"one", "two"} {
		p := s.project(t, "twice", "", saying("'"+text+"'"))
		go func() {
			_, err := p.as.Run(t.Context(), "deploy")
			ends <- end{text, err}
		}()
	}
	first, last := <-ends, <-ends
	if first.err != nil && last.err != nil {
		t.Fatalf("both fail: %v, %v", first.err, last.err)
	}
	for _, e := range []end{first, last} {
		if e.err != nil && !strings.Contains(e.err.Error(), "meanwhile") {
			t.Errorf("%s fails: %v", e.text, e.err)
		}
	}
	won := s.Hub.Kubectl(t, "get", "workerdeployment", "twice", "-n", s.team, "-o", "jsonpath={.metadata.annotations.workers\\.spokelet\\.io/deployment}")
	t.Logf("won: %s", won)
	testbed.Until(t, "both clusters serve one of them", testbed.Settle, func(ctx context.Context) error {
		var all error
		for _, text := range []string{"one", "two"} {
			err := errors.Join(s.served(ctx, s.Spokes[0], "twice", text), s.served(ctx, s.Spokes[1], "twice", text))
			if err == nil {
				return nil
			}
			all = errors.Join(all, err)
		}
		return all
	})
	s.project(t, "twice", "", saying("''")).run(t, "delete", "--force")
}

// checkNoErrors: the API and the operator had all rights that they need.
func (s *tests) checkNoErrors(t *testing.T) {
	for _, deployment := range []string{"spokelet-workers", "spokelet-workers-api"} {
		logs := s.Hub.Kubectl(t, "logs", "-n", env.WorkersNamespace, "deployment/"+deployment, "--tail=-1")
		for line := range strings.Lines(logs) {
			if strings.Contains(line, "panic") || strings.Contains(line, "forbidden") || strings.Contains(line, "request failed") {
				t.Errorf("%s logs %s", deployment, line)
			}
		}
	}
}

func (s *tests) remove(t *testing.T, accounts ...*tests) {
	t.Helper()
	args := []string{"delete", "namespace", "--timeout=180s"}
	inSpokes := []string{"get", "namespace", "--ignore-not-found", "-o", "name"}
	for _, a := range accounts {
		args, inSpokes = append(args, a.team), append(inSpokes, "workers-"+a.account)
	}
	s.Hub.Kubectl(t, args...)
	for _, spoke := range s.Spokes {
		testbed.Until(t, "the accounts' namespaces are gone from "+spoke.Name, testbed.Settle, func(ctx context.Context) error {
			out, err := spoke.Command.Run(ctx, inSpokes...)
			if err == nil && out != "" {
				err = fmt.Errorf("there is %s", out)
			}
			return err
		})
		spoke.Kubectl(t, "delete", "clusterrole,clusterrolebinding", asker)
	}
	s.Hub.Kubectl(t, "delete", "clusterrole,clusterrolebinding", asker)
	if err := s.Env.UninstallWorkers(t.Context()); err != nil {
		t.Fatal(err)
	}
}
