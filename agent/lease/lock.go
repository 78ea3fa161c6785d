// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock sees what the election does to the lease. The election calls it from one
// goroutine.
type lock struct {
	resourcelock.Interface
	term   *term
	logger logr.Logger
	logged string
	holder string // of the lease as it was last read
}

// Get reads the lease. A term ends when another process holds it, which somebody
// who deleted the lease brings about.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.report(err)
	if err == nil {
		l.holder = record.HolderIdentity
		if l.holder != "" && l.holder != l.Identity() {
			l.term.endIfBegun()
		}
	}
	return record, raw, err
}

// Create makes the lease, held by this process.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := time.Now()
	return l.observeWrite(record, began, l.Interface.Create(ctx, record))
}

// Update takes, renews or gives up the lease. It is given up once the work has
// ended.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		_ = l.term.stopAndWait() // told by whoever serves the term
		// The election gives up what it held when it last looked, and that may be
		// another process's by now.
		if l.holder != l.Identity() {
			return fmt.Errorf("lease %s: %w", l.Describe(), ErrNotHeld)
		}
	}
	began := time.Now()
	return l.observeWrite(record, began, l.Interface.Update(ctx, record))
}

func (l *lock) observeWrite(record resourcelock.LeaderElectionRecord, began time.Time, err error) error {
	if err == nil && record.HolderIdentity == l.Identity() {
		l.term.extend(began)
	}
	l.report(err)
	return err
}

// report logs why the lease cannot be read or written, once for each reason.
func (l *lock) report(err error) {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return // there is none yet, or another process was faster
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != l.logged {
		l.logger.Error(err, "lease cannot be used", "lease", l.Describe())
	}
	l.logged = text
}
