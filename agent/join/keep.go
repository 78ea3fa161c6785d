// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrRefused says that the hub does not admit the cluster's certificate: the
	// cluster's record was deleted, made anew, or is not accepted.
	ErrRefused = errors.New("hub does not admit this cluster's certificate")

	errSameToken = errors.New("the one here is that which the certificate was given for")
)

// patience is how long refusals last before they are called a problem: a hub
// that has just started refuses everyone until it has read its records.
const patience = 30 * time.Second

// refusal is what the tunnel tells of.
type refusal struct {
	certificate *x509.Certificate
	lasting     time.Duration
}

// Refused takes notice that the hub does not admit a certificate of Certificate,
// and for how long that has been so. It does not block.
func (i *Identity) Refused(certificate *x509.Certificate, lasting time.Duration) {
	select {
	case i.refused <- refusal{certificate, lasting}:
	default: // an earlier refusal is still to be looked at
	}
}

// Keep keeps a cluster that has joined joined, until ctx ends. It joins again
// when the certificate has ended; and when there is a join token that the
// certificate was not given for, at the start and after each refusal. joined is
// called whenever there is another certificate than before, whoever was given
// it; it must not block.
func (i *Identity) Keep(ctx context.Context, request Request, joined func()) error {
	request.setDefaults()
	lasting := false
	for ctx.Err() == nil {
		before, changed := i.get()
		if err := i.attempt(ctx, request, lasting); err != nil && ctx.Err() == nil {
			i.report(request, err)
		}
		if now, _ := i.get(); now == before && now != nil {
			lasting = i.wait(ctx, before, changed)
		}
		if now, _ := i.get(); now != before {
			i.report(request, nil)
			lasting = false
			joined()
		}
	}
	return nil
}

func (i *Identity) attempt(ctx context.Context, request Request, lasting bool) error {
	if err := i.Join(ctx, request); err != nil {
		return err
	}
	return i.spend(ctx, request, lasting)
}

// spend joins with a token that the certificate was not given for, if there is
// one. What the cluster has may be good all the same: that is for the hub to
// say, so without a lasting refusal it is no error to have no such token.
func (i *Identity) spend(ctx context.Context, request Request, lasting bool) error {
	current, _ := i.get()
	joinToken, err := request.Token()
	switch {
	case err == nil && hashToken(joinToken) != current.tokenHash:
		if err := i.enroll(ctx, request); err != nil {
			return fmt.Errorf("the new join token is of no use: %w", i.advise(err))
		}
		return i.save(ctx)
	case !lasting:
		return nil
	case err == nil:
		return i.advise(fmt.Errorf("%w: %w: %w", ErrRefused, ErrToken, errSameToken))
	default:
		return i.advise(fmt.Errorf("%w: %w", ErrRefused, err))
	}
}

// wait returns when there may be reason to join again, and whether that is a
// refusal that lasts.
func (i *Identity) wait(ctx context.Context, current *credentials, changed <-chan struct{}) (lasting bool) {
	// A moment later: at NotAfter itself a certificate is still valid.
	expiry := time.NewTimer(time.Until(current.leaf().NotAfter) + time.Millisecond)
	defer expiry.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-changed:
			return false
		case <-expiry.C:
			return false
		case r := <-i.refused:
			// That of a certificate before this one is no news.
			if r.certificate.Equal(current.leaf()) {
				return r.lasting >= patience
			}
		}
	}
}
