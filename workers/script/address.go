// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"slices"
	"strings"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

const (
	scheme = "s3://"
	maxKey = 1024 // bytes, of an object in S3
)

// URLs returns the addresses of a script in either spelling of the field, each once.
func URLs(s release.Script) []string {
	var urls []string
	for _, url := range slices.Concat(s.ScriptURLs, s.ScriptsURLs) {
		if !slices.Contains(urls, url) {
			urls = append(urls, url)
		}
	}
	return urls
}

// Prefix returns the key that an address of an account names: s3://bucket/key, or the key
// alone. It is that of an object, or with a slash behind it the beginning of keys. What lies
// elsewhere than below the account in the bucket is refused, as is every spelling that a
// store, a proxy or a file system might read as another key.
func Prefix(url, bucket, account string) (string, error) {
	key, err := cutBucket(url, bucket)
	if err != nil {
		return "", fmt.Errorf("%s: %w", quoted(url), err)
	}
	if len(key) > maxKey || !isPlainText(key) {
		return "", fmt.Errorf("%s: is longer than %d bytes, or has characters that are not text", quoted(url), maxKey)
	}
	segments := strings.Split(key, "/")
	for _, segment := range segments {
		if segment == "" || segment == "." || segment == ".." {
			return "", fmt.Errorf("%s: a segment of it is empty, or leads elsewhere", quoted(url))
		}
	}
	if account == "" || segments[0] != account || len(segments) < 2 {
		return "", fmt.Errorf("%s: is not below %s/, where the scripts of the account are", quoted(url), account)
	}
	return key, nil
}

// cutBucket takes the bucket from an address, and slashes from both ends of the rest.
func cutBucket(url, bucket string) (string, error) {
	key, found := strings.CutPrefix(url, scheme)
	if found {
		var name string
		name, key, _ = strings.Cut(key, "/")
		if name != bucket || bucket == "" {
			return "", fmt.Errorf("bucket %s is not the one that holds scripts", quoted(name))
		}
	} else if strings.Contains(url, "://") {
		return "", fmt.Errorf("is no address that begins with %s", scheme)
	}
	return strings.Trim(key, "/"), nil
}
