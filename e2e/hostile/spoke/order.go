// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/e2e/fleet"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// What a hostile spoke can be ordered to do.
const (
	// Roles says, as often as it can, that the agent ceases to execute works and does
	// so again; each time the hub opens another stream of Sync.
	Roles = "roles"
	// Inventories claims to hold as much as a mirror may, of every kind that a hub
	// publishes, and never says that it is done.
	Inventories = "inventories"
	// Reports sends, a few times, a status of the work that is 8.5 KB compressed, 8 MiB
	// of JSON, and would be a gigabyte once decoded.
	Reports = "reports"
	// Rewrite reports on the work until the time of the order is over, another value
	// of its feedback each time.
	Rewrite = "rewrite"

	// Kinds has the cluster answer, until Restore, with ConfigMaps whose kind is as long
	// as a piece of discovery may be.
	Kinds = "kinds"
	// ManagedFields does so with one object, whose metadata are read.
	ManagedFields = "managed fields"
	// Figures does so with as many figures of each node as may be.
	Figures = "figures"
	// Restore ends what one of these began: the cluster answers as an honest one again.
	// The answer's text is how many requests came meanwhile.
	Restore = "restore"
)

const (
	// FeedbackBytes is the size of the feedback of Rewrite.
	FeedbackBytes = 670 << 10
	// rewriteEvery is more often than the hub writes.
	rewriteEvery = 100 * time.Millisecond
	// hugeBody is how many bytes of JSON Reports and ManagedFields send at a time: by
	// far more than a hub takes of a report, which is resource.MaxReport.
	hugeBody = 8 << 20
)

// ErrIdle is of attacks that the hub was never open to, or never asked for.
var ErrIdle = errors.New("the hub had nothing to do with the hostile cluster: the attack proves nothing")

// Order is what a hostile spoke is to do, and for how long at most.
type Order struct {
	Do     string        `json:"do"`
	Within time.Duration `json:"within,omitempty"`
	// Key and UID are those of the work that it is about, if any.
	Key string `json:"key,omitempty"`
	UID string `json:"uid,omitempty"`
}

// carryOut does what is ordered and returns how it went. What is said over a stream of
// Sync may end it: the next order finds another one.
func (s *spoke) carryOut(ctx context.Context, o Order) (string, error) {
	say := map[string]func(context.Context, Order) (string, error){
		Roles: s.roles, Inventories: s.inventories, Reports: s.reports, Rewrite: s.rewrite,
	}[o.Do]
	if say == nil {
		return s.change(o)
	}
	saying, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	text, err := say(saying, o)
	return text, errors.Join(err, s.feed.open(ctx))
}

// change changes what a door answers.
func (s *spoke) change(o Order) (string, error) {
	switch o.Do {
	case Kinds:
		s.restoreDoor = s.kube.answer(kinds())
		return "", nil
	case ManagedFields:
		s.restoreDoor = s.kube.answer(managedFields())
		return "", nil
	case Figures:
		s.restoreDoor = s.node.answer(http.HandlerFunc(figures))
		return "", nil
	case Restore:
		return s.restore()
	default:
		return "", fmt.Errorf("%q: %w", o.Do, errors.ErrUnsupported)
	}
}

// restore has the door that an order changed answer as an honest cluster's again, and
// returns how many requests came to it meanwhile.
func (s *spoke) restore() (string, error) {
	if s.restoreDoor == nil {
		return "0", ErrIdle
	}
	served := s.restoreDoor()
	s.restoreDoor = nil
	return strconv.FormatInt(served, 10), nil
}

func (s *spoke) roles(ctx context.Context, _ Order) (string, error) {
	const lasting = 5 * time.Second
	before, changes := s.feed.streamCount(), 0
	for end := time.Now().Add(lasting); time.Now().Before(end) && ctx.Err() == nil; changes++ {
		s.setStandby(changes%2 == 0)
		Pause(ctx, 100*time.Microsecond) // else the changes are merged before they are sent
	}
	s.setStandby(false)
	return fmt.Sprintf("%d changes, %d streams of Sync", changes, s.feed.streamCount()-before), nil
}

func (s *spoke) inventories(ctx context.Context, _ Order) (string, error) {
	const lasting = 3 * time.Second
	// A hub that waits for room does not see that its stream was cut, for a minute.
	defer s.reopenSync()
	chunks := 0
	for chunk := range resource.MaxResources / refsPerChunk {
		for _, kind := range []string{wire.KindWork, wire.KindPod, wire.KindPodObject} {
			if err := s.feed.sendNext(ctx, chunks, "", held(kind, chunk)); err != nil {
				return fmt.Sprintf("cut after %d chunks", chunks), atLeastOnce(chunks)
			}
			chunks++
		}
	}
	Pause(ctx, lasting)
	return fmt.Sprintf("%d chunks of %d", chunks, refsPerChunk), nil
}

// reopenSync has the hub give up its stream of Sync and open another.
func (s *spoke) reopenSync() {
	s.feed.cutStream()
	s.setStandby(true)
	s.setStandby(false)
}

func (s *spoke) reports(ctx context.Context, o Order) (string, error) {
	const times, head, tail = 4, `{"observedGeneration":1,"manifests":[`, `{}]}`
	body := []byte(padded(head, tail))
	sent := 0
	for range times {
		if err := s.feed.sendNext(ctx, sent, wire.KindWorkStatus, put(wire.KindWorkStatus, o.Key, o.UID, body)); err != nil {
			return fmt.Sprintf("cut after %d reports", sent), atLeastOnce(sent)
		}
		sent++
		Pause(ctx, time.Second)
	}
	return fmt.Sprintf("%d reports", sent), nil
}

func (s *spoke) rewrite(ctx context.Context, o Order) (string, error) {
	changes := 0
	for ; ctx.Err() == nil; changes++ {
		body, err := feedback(changes)
		if err != nil {
			return "", err
		}
		if err := s.feed.sendNext(ctx, changes, wire.KindWorkStatus, put(wire.KindWorkStatus, o.Key, o.UID, body)); err != nil {
			break
		}
		Pause(ctx, rewriteEvery)
	}
	return fmt.Sprintf("%d changes", changes), atLeastOnce(changes)
}

func feedback(value int) ([]byte, error) {
	text, number := strings.Repeat("0123456789abcdef", FeedbackBytes/16), int64(value)
	return json.Marshal(wire.WorkStatus{
		ObservedGeneration: 1,
		Manifests: []workv1.ManifestCondition{{
			ResourceMeta: workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Name: "probe", Namespace: "default"},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
				{Name: "text", Value: workv1.FieldValue{Type: workv1.String, String: &text}},
				{Name: "number", Value: workv1.FieldValue{Type: workv1.Integer, Integer: &number}},
			}},
		}},
	})
}

func kinds() http.Handler {
	const items = 30_000
	return answers(map[string]string{
		"/api/v1":      fleet.Resources(strings.Repeat("K", 60_000)),
		fleet.ListPath: `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[` + strings.Repeat(`{},`, items) + `{}]}`,
	})
}

func managedFields() http.Handler {
	const head, tail = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"small","managedFields":[`, `{}]}}`
	return answers(map[string]string{fleet.ObjectPath: padded(head, tail)})
}

// padded fills the list between head and tail with empty objects, as many as fit into
// hugeBody.
func padded(head, tail string) string {
	return head + strings.Repeat(`{},`, (hugeBody-len(head)-len(tail))/3) + tail
}

// answers are those of an honest cluster but for some paths.
func answers(bodies map[string]string) http.Handler {
	honest := fleet.Kube()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, found := bodies[r.URL.Path]; found {
			fleet.Answer(w, body)
			return
		}
		honest.ServeHTTP(w, r)
	})
}

// usual are the figures of a small node.
func usual(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total 1 1700000000000\n")
}

func figures(w http.ResponseWriter, r *http.Request) {
	const most = 32 << 20
	line := []byte(strings.Repeat("# "+strings.Repeat("x", 1021)+"\n", 32))
	for sent := len(line); sent <= most && r.Context().Err() == nil; sent += len(line) {
		if _, err := w.Write(line); err != nil {
			return
		}
	}
}

func atLeastOnce(times int) error {
	if times < 1 {
		return ErrIdle
	}
	return nil
}

// Pause lets time pass: an attack lasts.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
