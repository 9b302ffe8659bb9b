package bedrock

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// WithCredentials sets an access key of AWS, for programs that do not have a
// configuration of the SDK. The session token is empty for a long-term key. The
// option belongs behind WithAWSConfig, if both are used.
func WithCredentials(accessKeyID, secretAccessKey, sessionToken string) Option {
	return func(s *settings) {
		s.aws.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: accessKeyID, SecretAccessKey: secretAccessKey, SessionToken: sessionToken}, nil
		})
	}
}
