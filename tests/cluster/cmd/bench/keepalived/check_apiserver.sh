#!/bin/sh
exec curl -sfk --max-time 2 https://localhost:@PORT@/healthz -o /dev/null
