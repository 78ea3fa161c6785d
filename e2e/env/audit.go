// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters"
)

// maxAuditLine bounds one line of an audit log.
const maxAuditLine = 4 << 20

// Request is what an audit log says of one request, the fields that tests use
// of audit.k8s.io/v1 Event.
type Request struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Impersonated *struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	ObjectRef struct {
		APIGroup  string `json:"apiGroup"`
		Resource  string `json:"resource"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		// Subresource is empty for the object itself.
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// Ours says whether one of Spokelet's identities made the request.
func (r Request) Ours() bool {
	return slices.Contains([]string{
		"system:serviceaccount:" + HubNamespace + ":spokelet-hub",
		"system:serviceaccount:" + AgentNamespace + ":spokelet-agent",
	}, r.User.Username)
}

// AllowedAtRest says whether the request may happen while nothing happens: a
// lease of a node, or a watch that is opened again when its time is up.
func (r Request) AllowedAtRest() bool {
	return r.Verb == "watch" || r.ObjectRef.Resource == "leases"
}

// String is one line for a test's report.
func (r Request) String() string {
	who := r.User.Username
	if r.Impersonated != nil {
		who += " as " + r.Impersonated.Username
	}
	return fmt.Sprintf("%s %s by %s: %d", r.Verb, r.RequestURI, who, r.ResponseStatus.Code)
}

// AuditSize is the present length of a cluster's audit log, an offset for
// AuditSince.
func AuditSize(c *clusters.Cluster) (int64, error) {
	info, err := os.Stat(c.AuditLog)
	if err != nil {
		return 0, fmt.Errorf("audit log of %s: %w", c.Name, err)
	}
	return info.Size(), nil
}

// AuditSince reads the requests that were logged after an offset.
func AuditSince(c *clusters.Cluster, offset int64) ([]Request, error) {
	return auditFrom(c, offset).Next()
}

// AuditTail reads a cluster's audit log bit by bit.
type AuditTail struct {
	cluster *clusters.Cluster
	offset  int64
	// partly says that the line at the offset was begun before the tail was.
	partly bool
}

// TailAudit begins one at the present end of the log.
func TailAudit(c *clusters.Cluster) (*AuditTail, error) {
	size, err := AuditSize(c)
	return auditFrom(c, size), err
}

// auditFrom begins one at an offset: at the byte before, whose line was begun earlier and may
// have a rest.
func auditFrom(c *clusters.Cluster, offset int64) *AuditTail {
	return &AuditTail{cluster: c, offset: max(offset-1, 0), partly: offset > 0}
}

// Next reads the requests that were logged since the last call.
func (a *AuditTail) Next() ([]Request, error) {
	requests, err := a.read()
	if err != nil {
		err = fmt.Errorf("audit log of %s: %w", a.cluster.Name, err)
	}
	return requests, err
}

func (a *AuditTail) read() ([]Request, error) {
	file, err := os.Open(a.cluster.AuditLog)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return nil, err
	}
	var requests []Request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxAuditLine)
	lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		advance, line, err := wholeLines(data, atEOF)
		if line != nil {
			a.offset += int64(advance)
		}
		return advance, line, err
	})
	if a.partly && lines.Scan() {
		a.partly = false
	}
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var r Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, err
		}
		requests = append(requests, r)
	}
	return requests, lines.Err()
}

// wholeLines is bufio.ScanLines without a last line that is still being written.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if atEOF && !bytes.ContainsRune(data, '\n') {
		return len(data), nil, nil
	}
	return bufio.ScanLines(data, atEOF)
}
