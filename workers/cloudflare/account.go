// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import "context"

// verifyToken says that the token is valid, which is known by now.
func (a *API) verifyToken(_ context.Context, c *call) (any, error) {
	return map[string]string{"id": c.user.UID, "status": "active"}, nil
}

func (a *API) getUser(_ context.Context, c *call) (any, error) {
	return map[string]string{"id": c.user.UID, "email": c.user.Username}, nil
}

// listAccounts are those whose scripts the user may read.
func (a *API) listAccounts(ctx context.Context, c *call) (any, error) {
	ids, err := a.readableAccounts(ctx, c)
	all := []accountJSON{}
	for _, id := range ids {
		all = append(all, accountJSON{ID: id, Name: id})
	}
	return all, err
}

func (a *API) listMemberships(ctx context.Context, c *call) (any, error) {
	ids, err := a.readableAccounts(ctx, c)
	type membership struct {
		ID      string      `json:"id"`
		Account accountJSON `json:"account"`
		Roles   []string    `json:"roles"`
	}
	all := []membership{}
	for _, id := range ids {
		all = append(all, membership{ID: id, Account: accountJSON{ID: id, Name: id}, Roles: []string{}})
	}
	return all, err
}

func (a *API) readableAccounts(ctx context.Context, c *call) ([]string, error) {
	return a.config.Accounts.ListReadable(ctx, c.user, rateLimitedAuthorizer{a.config.Reviewer, a.limits.holderRates.get(c.token.holder)})
}

// getSubdomain is asked for by wrangler where nothing else says under which name a script is
// reached.
func (a *API) getSubdomain(_ context.Context, c *call) (any, error) {
	return map[string]string{"subdomain": c.account.ID}, nil
}

// emptyList lists what no script has.
func emptyList(context.Context, *call) (any, error) { return []struct{}{}, nil }
