"""Make a bucket of an S3 store, if it is not there yet: make_bucket.py NAME.

The store and the keys are AWS_ENDPOINT_URL_S3, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the environment.
"""

import sys

import boto3

store, name = boto3.client("s3"), sys.argv[1]
if name in [bucket["Name"] for bucket in store.list_buckets()["Buckets"]]:
    print(f"bucket {name} is there")
else:
    store.create_bucket(Bucket=name)
    print(f"bucket {name} made")
