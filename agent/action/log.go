// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/api/wire"
)

const (
	// labelLog marks the entries.
	labelLog = "spokelet.io/ledger"
	// logActions is its value.
	logActions = "action"
	// entryKey has the entry as JSON.
	entryKey = "entry"
)

var errEntry = errors.New("outcome unknown: the entry of the action log cannot be decoded")

// logEntry is the entry of one action.
type logEntry struct {
	// Key of the action on the hub, for people.
	Key  string    `json:"key"`
	Verb wire.Verb `json:"verb"`
	// Resource, Namespace and Name of the object, as resolved and generated.
	Resource  schema.GroupVersionResource `json:"resource"`
	Namespace string                      `json:"namespace,omitempty"`
	Name      string                      `json:"name"`
	// UID and Version of the object before the action; empty for one that is created.
	UID     types.UID `json:"uid,omitempty"`
	Version string    `json:"version,omitempty"`
	// Process has created the entry.
	Process types.UID `json:"process"`
	// Started is before anything was written, Ended when the outcome was known.
	Started metav1.Time  `json:"started"`
	Ended   *metav1.Time `json:"ended,omitempty"`
	// Refusal of an entry with an end; nil if the action was performed.
	Refusal *wire.Refusal `json:"refusal,omitempty"`
	// Warnings of the API server.
	Warnings []string `json:"warnings,omitempty"`
	// Release is the result of an action of Helm, without a manifest.
	Release *message.Release `json:"release,omitempty"`

	// stored is the ConfigMap, with its version.
	stored *corev1.ConfigMap
}

// actionLog stores the entries as ConfigMaps.
type actionLog struct {
	client corev1client.ConfigMapInterface
	log    logr.Logger
	// process identifies this process in its entries.
	process types.UID
	// isWanted reports whether the hub has the action of an entry.
	isWanted func(entryName string) bool
	// wakeups wakes the collection.
	wakeups chan struct{}

	mu sync.Mutex
	// All below are guarded by mu.
	//
	// open are the actions without an outcome that this process works on, by the name of
	// the entry.
	open map[string]progress
	// expiring are the entries that wait for their removal, the oldest first.
	expiring []expiringEntry
	// loaded: kept has those of earlier processes, too.
	loaded bool
	// synced: what wanted says is complete.
	synced bool
}

// progress is how far this process has come with an action without a recorded outcome.
type progress struct {
	// performed: something may have been written.
	performed bool
	// concluded: the outcome is known, but could not be written yet.
	concluded bool
	refusal   *wire.Refusal
}

func newActionLog(cfg Config, wanted func(entryName string) bool) *actionLog {
	return &actionLog{
		client: cfg.Entries, log: cfg.Logger, process: uuid.NewUUID(), isWanted: wanted,
		wakeups: make(chan struct{}, 1), open: map[string]progress{},
	}
}

// getEntry returns nil if there is no entry. One that cannot be decoded has an unknown outcome.
func (l *actionLog) getEntry(ctx context.Context, r request) (*logEntry, error) {
	stored, err := l.client.Get(ctx, r.entryName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get entry of action %s: %w", r.key, err)
	}
	e, err := decodeEntry(stored)
	if err != nil {
		l.log.Error(err, "Entry of the action log cannot be decoded", "configMap", stored.Name)
		e.Ended, e.Refusal = &stored.CreationTimestamp, wire.Refuse(wire.CauseUnknown, "", errEntry.Error())
	}
	return e, nil
}

// decodeEntry decodes an entry, which is never nil.
func decodeEntry(stored *corev1.ConfigMap) (*logEntry, error) {
	e := &logEntry{}
	if err := json.Unmarshal([]byte(stored.Data[entryKey]), e); err != nil {
		return &logEntry{stored: stored}, fmt.Errorf("decode entry: %w", err)
	}
	e.stored = stored
	return e, nil
}

// progress returns how far this process has come with an action. An action that another
// process has started may have been performed.
func (l *actionLog) progress(e *logEntry) progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.open[e.stored.Name]
	if !ok || e.Process != l.process && !p.concluded {
		p = progress{performed: true}
	}
	l.open[e.stored.Name] = p
	return p
}

// setPerformed records that something may be written from now on.
func (l *actionLog) setPerformed(e *logEntry) {
	l.setProgress(e.stored.Name, progress{performed: true})
}

// setUnsent records that nothing was written.
func (l *actionLog) setUnsent(e *logEntry) { l.setProgress(e.stored.Name, progress{}) }

func (l *actionLog) setProgress(name string, p progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[name] = p
}

// createEntry creates the entry. It may exist even after an error; then the progress shows that
// nothing was performed yet.
func (l *actionLog) createEntry(ctx context.Context, r request, e *logEntry) error {
	e.Key, e.Process, e.Started = r.key, l.process, metav1.Now()
	raw, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode entry of action %s: %w", r.key, err)
	}
	l.openEntry(r.entryName(), e.Started.Time)
	e.stored, err = l.client.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: r.entryName(), Labels: map[string]string{labelLog: logActions}},
		Data:       map[string]string{entryKey: string(raw)},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create entry of action %s: %w", r.key, err)
	}
	l.setPerformed(e)
	return nil
}

// updateEntry writes the entry.
func (l *actionLog) updateEntry(ctx context.Context, e *logEntry) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode entry of action %s: %w", e.Key, err)
	}
	next := e.stored.DeepCopy()
	next.Data = map[string]string{entryKey: string(raw)}
	stored, err := l.client.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update entry of action %s: %w", e.Key, err)
	}
	e.stored = stored
	return nil
}

// finishEntry records the outcome.
func (l *actionLog) finishEntry(ctx context.Context, e *logEntry, refusal *wire.Refusal) error {
	l.setProgress(e.stored.Name, progress{performed: true, concluded: true, refusal: refusal})
	now := metav1.Now()
	e.Ended, e.Refusal = &now, refusal
	if err := l.updateEntry(ctx, e); err != nil {
		return err
	}
	l.closeEntry(e.stored.Name, now.Time)
	return nil
}
