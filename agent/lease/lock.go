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

// lock observes the requests of the election. The election calls it from one goroutine.
type lock struct {
	resourcelock.Interface
	term   *term
	logger logr.Logger
	logged string
	holder string // of the lease when it was last read
}

// Get reads the lease. A term ends when another process holds it, which happens after
// somebody has deleted the lease.
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

// Create creates the lease, held by this process.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := time.Now()
	return l.observeWrite(record, began, l.Interface.Create(ctx, record))
}

// Update acquires, renews or releases the lease. It is released once the work has stopped.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		_ = l.term.stopAndWait() // whose error runTerm returns
		// The election releases what it held when it last read the lease, which another
		// process may hold by now.
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

// report logs why the lease cannot be read or written, once for each error.
func (l *lock) report(err error) {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return // the lease does not exist yet, or another process was faster
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != l.logged {
		l.logger.Error(err, "Lease cannot be read or written", "lease", l.Describe())
	}
	l.logged = text
}
