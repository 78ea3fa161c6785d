// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/env"
)

const (
	wrangled = "wrangled" // the script that is deployed as wrangler does it
	// lines of a log that are timed.
	lines = 50
)

// developer may deploy to the account, which is opened to the API.
const developer = `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: developer, namespace: ` + team + `}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: developer, namespace: ` + team + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: developer, namespace: ` + team + `}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: wrangler, namespace: ` + team + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "spokelet-workers:account"}
subjects: [{kind: ServiceAccount, name: spokelet-workers-api, namespace: ` + env.WorkersNamespace + `}]
`

// wrangler measures what a developer waits for. A deploy is made of the requests that wrangler
// sends, so that its own start, of a second and more, is not in the figure; the tail is the
// real one.
func (s *suite) wrangler(ctx context.Context) ([]figure.Figure, error) {
	program, err := s.env.Build.Wrangler(ctx)
	if errors.Is(err, env.ErrNoWrangler) {
		_, err = fmt.Fprintf(s.out, "bench: wrangler is left out: %v\n", err)
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	kubectl := s.env.Kubectl(s.env.Set.Hub())
	if err := apply(ctx, kubectl, developer); err != nil {
		return nil, err
	}
	token, err := kubectl.Run(ctx, "create", "token", "developer", "-n", team, "--audience=spokelet-workers")
	if err != nil {
		return nil, err
	}
	c, err := s.newCaller(strings.TrimSpace(token))
	if err != nil {
		return nil, err
	}
	defer c.client.CloseIdleConnections()
	deploys, err := s.wranglerDeploys(ctx, c)
	if err != nil {
		return nil, err
	}
	figures := []figure.Figure{seconds("wrangler.deploy.s", deploys, "; from the answer to the upload")}
	tail, err := s.wranglerTail(ctx, program, c.token)
	if err != nil {
		return figures, err
	}
	return append(figures, figure.Figure{
		Name: "wrangler.tail.ms", Value: milliseconds(tail.Percentile(50)), Unit: "ms",
		Detail: fmt.Sprintf("n=%d, p90 %.0f, max %.0f", len(tail), milliseconds(tail.Percentile(90)), milliseconds(tail.Percentile(100))),
	}), nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// caller sends requests as wrangler does.
type caller struct {
	client *http.Client
	base   string
	token  string
}

func (s *suite) newCaller(token string) (*caller, error) {
	authority, err := os.ReadFile(s.env.WorkersCA())
	if err != nil {
		return nil, fmt.Errorf("workers API: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &caller{
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}},
		base:   s.env.WorkersAPI() + "/accounts/" + account + "/workers/scripts/" + wrangled, token: token,
	}, nil
}

// send sends a request and reads the id in its answer.
func (c *caller) send(ctx context.Context, method, path, contentType string, body io.Reader) (id string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return "", fmt.Errorf("workers API: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", contentType)
	resp, err := c.client.Do(req)
	if err != nil {
		return "", fmt.Errorf("workers API: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("workers API: %s %s: %d %.500s: %w", method, path, resp.StatusCode, raw, err)
	}
	var answer struct {
		Result struct{ ID string }
	}
	err = json.Unmarshal(raw, &answer)
	return answer.Result.ID, err
}

// upload is the form of a version.
func upload(version int) (contentType string, body io.Reader, err error) {
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	err = w.WriteField("metadata", `{"main_module":"index.js","bindings":[],"compatibility_date":"2026-01-15"}`)
	part, partErr := w.CreatePart(map[string][]string{
		"Content-Disposition": {`form-data; name="index.js"; filename="index.js"`}, "Content-Type": {"application/javascript+module"},
	})
	if err := errors.Join(err, partErr); err != nil {
		return "", nil, fmt.Errorf("upload: %w", err)
	}
	_, err = fmt.Fprintf(part, "export default { fetch() { console.log('asked'); return new Response(%q); } };\n", answer(version))
	return w.FormDataContentType(), &out, errors.Join(err, w.Close())
}

// wranglerDeploys deploys new code, each time as wrangler does for a script that is there.
func (s *suite) wranglerDeploys(ctx context.Context, c *caller) (taken figure.Durations, err error) {
	contentType, body, err := upload(0)
	if err != nil {
		return nil, err
	}
	if _, err := c.send(ctx, http.MethodPut, "", contentType, body); err != nil {
		return nil, err
	}
	for version := 1; version <= rounds; version++ {
		contentType, body, err := upload(version)
		if err != nil {
			return nil, err
		}
		id, err := c.send(ctx, http.MethodPost, "/versions", contentType, body)
		if err != nil {
			return nil, err
		}
		one, err := s.untilOf(ctx, wrangled, version, func() error {
			go func() {
				deployment := fmt.Sprintf(`{"strategy":"percentage","versions":[{"version_id":%q,"percentage":100}]}`, id)
				if _, err := c.send(ctx, http.MethodPost, "/deployments", "application/json", strings.NewReader(deployment)); err != nil {
					_, _ = fmt.Fprintf(s.out, "bench: %v\n", err)
				}
			}()
			return nil
		})
		if err != nil {
			return nil, err
		}
		taken = append(taken, one)
	}
	return taken, nil
}

// event is what is read of one that wrangler prints.
type event struct {
	Logs []struct{ Timestamp int64 } // milliseconds
}

// wranglerTail asks the script in both clusters in turn, and returns how long it took from each
// line of its log, whose time the script's runtime has written, until wrangler has printed it.
func (s *suite) wranglerTail(ctx context.Context, program, token string) (taken figure.Durations, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dir, err := os.MkdirTemp("", "bench-wrangler-")
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := s.env.WranglerCommand(program, dir, account, token).Cmd(ctx, "tail", wrangled, "--format", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("wrangler: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("wrangler: %w", err)
	}
	seen := make(chan time.Duration, 2*lines)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		read(out, seen)
	}()
	defer func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	}()
	spokes := s.env.Set.Spokes()
	for i := 0; len(taken) < lines; i++ {
		spoke := spokes[i%len(spokes)]
		if _, err := s.get(ctx, s.pathOf(spoke.Name, wrangled)); err != nil {
			return nil, err
		}
		select {
		case one := <-seen:
			if i >= 2*len(spokes) { // the first ones may come while streams are opened
				taken = append(taken, one)
			}
		case <-time.After(time.Second): // the tail was not there yet
		case <-ctx.Done():
			return nil, fmt.Errorf("wrangler tail: %w", ctx.Err())
		}
	}
	return taken, nil
}

// read reads what wrangler prints, until its end.
func read(out io.Reader, seen chan<- time.Duration) {
	decoder := json.NewDecoder(out)
	for {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return
		}
		if len(e.Logs) > 0 {
			select {
			case seen <- time.Since(time.UnixMilli(e.Logs[0].Timestamp)):
			default:
			}
		}
	}
}
