"""What people and programs read: lines of text, JSON, and whole documents.

Functions return lines or values; nothing here prints.
"""
