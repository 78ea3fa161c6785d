// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import "context"

// verifyToken says that the token is valid, which is known by now.
func (a *API) verifyToken(_ context.Context, c *call) (any, error) {
	return map[string]string{"id": c.user.UID, "status": "active"}, nil
}

func (a *API) user(_ context.Context, c *call) (any, error) {
	return map[string]string{"id": c.user.UID, "email": c.user.Username}, nil
}

// accounts are those whose scripts the user may read.
func (a *API) accounts(ctx context.Context, c *call) (any, error) {
	ids, err := a.accountsOf(ctx, c)
	all := []accountShape{}
	for _, id := range ids {
		all = append(all, accountShape{ID: id, Name: id})
	}
	return all, err
}

func (a *API) memberships(ctx context.Context, c *call) (any, error) {
	ids, err := a.accountsOf(ctx, c)
	type membership struct {
		ID      string       `json:"id"`
		Account accountShape `json:"account"`
		Roles   []string     `json:"roles"`
	}
	all := []membership{}
	for _, id := range ids {
		all = append(all, membership{ID: id, Account: accountShape{ID: id, Name: id}, Roles: []string{}})
	}
	return all, err
}

func (a *API) accountsOf(ctx context.Context, c *call) ([]string, error) {
	return a.config.Accounts.Of(ctx, c.user, paced{a.config.Reviewer, a.limits.holders.of(c.token.holder)})
}

// subdomain is asked for by wrangler where nothing else says under which name a script is
// reached.
func (a *API) subdomain(_ context.Context, c *call) (any, error) {
	return map[string]string{"subdomain": c.account.ID}, nil
}

// nothing lists what no script has.
func nothing(context.Context, *call) (any, error) { return []struct{}{}, nil }
