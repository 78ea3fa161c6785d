// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tokenLife is the shortest that an API server grants.
const tokenLife = 10 * time.Minute

var errToken = errors.New("no token for the kubelets")

// TokenCreator makes tokens of service accounts (TokenRequest); a client-go
// ServiceAccountInterface does.
type TokenCreator interface {
	CreateToken(ctx context.Context, account string, request *authenticationv1.TokenRequest, opts metav1.CreateOptions) (*authenticationv1.TokenRequest, error)
}

// accountToken is the token of one account. It is made when it is asked for and
// kept in memory for four fifths of its life; nobody asking makes none.
type accountToken struct {
	creator TokenCreator
	account string

	// semaphore holds one value while a goroutine uses what is below. A mutex would
	// keep those waiting that have given up.
	semaphore chan struct{}
	bearer    string
	renewAt   time.Time
}

func newAccountToken(creator TokenCreator, account string) *accountToken {
	return &accountToken{creator: creator, account: account, semaphore: make(chan struct{}, 1)}
}

// get returns a token with some life left. Of those who ask together one makes
// it.
func (t *accountToken) get(ctx context.Context) (string, error) {
	select {
	case t.semaphore <- struct{}{}:
		defer func() { <-t.semaphore }()
	case <-ctx.Done():
		return "", fmt.Errorf("%w: account %q: %w", errToken, t.account, ctx.Err())
	}
	if time.Now().Before(t.renewAt) {
		return t.bearer, nil
	}
	if err := t.renew(ctx); err != nil {
		return "", fmt.Errorf("%w: account %q: %w", errToken, t.account, err)
	}
	return t.bearer, nil
}

func (t *accountToken) renew(ctx context.Context) error {
	asked := time.Now()
	// No audience: the kubelet has the API server review the token, which takes
	// those that are meant for itself.
	made, err := t.creator.CreateToken(ctx, t.account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenLife.Seconds()))},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if made.Status.Token == "" || made.Spec.ExpirationSeconds == nil {
		return errors.New("the API server's answer has no token or no life")
	}
	// The life and not the end, which is told by the API server's clock.
	life := time.Duration(*made.Spec.ExpirationSeconds) * time.Second
	t.bearer, t.renewAt = made.Status.Token, asked.Add(life/5*4)
	return nil
}
